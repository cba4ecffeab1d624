// ComputeSDK's provider for E2B, unmodified.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b } from '@computesdk/e2b'

const compute = e2b({ apiKey: process.env.E2B_API_KEY })

test('a sandbox: commands, files, lists, its end', async () => {
  const sandbox = await compute.sandbox.create({ envs: { ONE: '1' }, metadata: { client: 'computesdk' }, timeout: 120_000 })
  try {
    const first = await sandbox.runCommand("python - <<'PY'\nimport os\nprint('one is', os.environ['ONE'])\nPY")
    assert.deepEqual([first.exitCode, first.stdout, first.stderr], [0, 'one is 1\n', ''])
    assert.equal((await sandbox.runCommand('exit 5')).exitCode, 5)
    const placed = await sandbox.runCommand('echo "$TWO $PWD"', { cwd: '/tmp', env: { TWO: 'a $b' } })
    assert.equal(placed.exitCode, 0, placed.stderr)
    assert.equal((await sandbox.runCommand('sh -c \'echo "$TWO $PWD"\'', { cwd: '/tmp', env: { TWO: 'a $b' } })).stdout, 'a $b /tmp\n')

    const { filesystem } = sandbox
    await filesystem.mkdir('/tmp/data')
    await filesystem.writeFile('/tmp/data/hello.py', 'print("Hello World")')
    assert.equal(await filesystem.readFile('/tmp/data/hello.py'), 'print("Hello World")')
    assert.deepEqual((await filesystem.readdir('/tmp/data')).map((e) => e.name), ['hello.py'])
    assert.equal((await sandbox.runCommand('python /tmp/data/hello.py')).stdout, 'Hello World\n')
    assert.equal(await filesystem.exists('/tmp/data/hello.py'), true)
    await filesystem.remove('/tmp/data/hello.py')
    assert.equal(await filesystem.exists('/tmp/data/hello.py'), false)

    await sandbox.runCommand('echo $$ >/tmp/began; sleep 1000', { background: true })
    const again = await compute.sandbox.getById(sandbox.sandboxId)
    assert.match((await again.runCommand('until [ -s /tmp/began ]; do sleep 0.1; done; cat /tmp/began')).stdout, /^\d+$/m)
    assert.equal((await sandbox.getInfo()).status, 'running')
    assert.match(await sandbox.getUrl({ port: 3000 }), new RegExp(`^https://3000-.*\\.${process.env.E2B_DOMAIN}$`))
    assert.ok((await compute.sandbox.list()).some((s) => s.sandboxId === sandbox.sandboxId))
  } finally {
    await sandbox.destroy()
  }
  assert.equal(await compute.sandbox.getById(sandbox.sandboxId), null)
})

test('a snapshot, and a sandbox made from it', async () => {
  const sandbox = await compute.sandbox.create()
  const made = [sandbox]
  try {
    await sandbox.filesystem.writeFile('/home/user/kept', 'kept')
    const snapshot = await compute.snapshot.create(sandbox.sandboxId, { name: 'computesdk' })
    const next = await compute.sandbox.create({ snapshotId: snapshot.id })
    made.push(next)
    assert.equal(await next.filesystem.readFile('/home/user/kept'), 'kept')
  } finally {
    for (const s of made) await s.destroy()
  }
})
