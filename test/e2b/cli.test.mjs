// E2B's command line, unmodified, as a user calls it: with a key in the
// environment and nothing else.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { until, withSandbox } from './lib.mjs'

const cli = fileURLToPath(new URL('node_modules/@e2b/cli/dist/index.js', import.meta.url))

let home
before(async () => { home = await mkdtemp(join(tmpdir(), 'carboy-cli-')) })
after(() => rm(home, { recursive: true, force: true }))

// e2b runs the command line and returns how it ended and what it printed.
function e2b(args, { input, env } = {}) {
  return new Promise((resolve, reject) => {
    const p = spawn(process.execPath, [cli, ...args], {
      cwd: home,
      env: { ...process.env, HOME: home, NO_COLOR: '1', FORCE_COLOR: '0', ...env },
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    })
    let out = '', err = ''
    p.stdout.on('data', (d) => { out += d })
    p.stderr.on('data', (d) => { err += d })
    p.on('error', reject)
    p.on('close', (code) => resolve({ code, out, err }))
    if (input !== undefined) p.stdin.end(input)
  })
}

async function ok(args, options) {
  const r = await e2b(args, options)
  assert.equal(r.code, 0, `e2b ${args.join(' ')}: ${r.out}${r.err}`)
  return r.out
}

const ids = (json) => JSON.parse(json).map((s) => s.sandboxId)

test('a sandbox is created, listed, looked at and killed', async () => {
  const before = new Set(ids(await ok(['sandbox', 'list', '--format', 'json'])))
  await ok(['sandbox', 'create', 'base', '--detach', '--timeout', '120'])
  const id = ids(await ok(['sandbox', 'list', '--format', 'json'])).find((s) => !before.has(s))
  assert.match(id, /^sb_/)
  assert.match(await ok(['sandbox', 'list']), new RegExp(id))
  const info = JSON.parse(await ok(['sandbox', 'info', id, '--format', 'json']))
  assert.equal(info.state, 'running')
  assert.equal(info.templateId, 'base')
  assert.match(await ok(['sandbox', 'kill', id]), /has been killed/)
  assert.ok(!ids(await ok(['sandbox', 'list', '--format', 'json'])).includes(id))
  const gone = await e2b(['sandbox', 'info', id])
  assert.notEqual(gone.code, 0)
  assert.match(gone.err, /wasn't found/)
})

test('a command has its input, its output and its exit code', () => withSandbox({}, async (sandbox) => {
  const id = sandbox.sandboxId
  assert.equal(await ok(['sandbox', 'exec', id, 'echo hello']), 'hello\n')
  assert.equal(await ok(['sandbox', 'exec', '--env', 'A=b c', '--cwd', '/tmp', id, 'echo "$A $PWD"']), 'b c /tmp\n')
  assert.equal(await ok(['sandbox', 'exec', id, 'cat'], { input: 'from a pipe\n' }), 'from a pipe\n')
  const failed = await e2b(['sandbox', 'exec', id, 'echo oops >&2; exit 3'])
  assert.equal(failed.code, 3)
  assert.match(failed.err, /oops/)
}))

test('logs tell what happened', () => withSandbox({}, async (sandbox) => {
  const lines = (await ok(['sandbox', 'logs', sandbox.sandboxId, '--format', 'json'])).split('\n').filter((l) => l.startsWith('{'))
  assert.ok(lines.map((l) => JSON.parse(l)).some((l) => l.type === 'started'), lines.join('\n'))
  assert.match(await ok(['sandbox', 'logs', sandbox.sandboxId]), /started/)
}))

test('metrics and templates are shown', () => withSandbox({}, async (sandbox) => {
  const metrics = async () => (await ok(['sandbox', 'metrics', sandbox.sandboxId, '--format', 'json']))
    .split('\n').filter((l) => l.startsWith('{')).map((l) => JSON.parse(l))
  const [first] = await until(async () => { const m = await metrics(); return m.length > 0 && m })
  assert.ok(first.cpuCount >= 1 && first.memTotal > 0, JSON.stringify(first))
  assert.ok(Array.isArray(JSON.parse(await ok(['template', 'list', '--format', 'json']))))
}))

test('sandboxes are paused and resumed', () => withSandbox({}, async (sandbox) => {
  const id = sandbox.sandboxId
  await ok(['sandbox', 'pause', id])
  assert.ok(ids(await ok(['sandbox', 'list', '--state', 'paused', '--format', 'json'])).includes(id))
  await ok(['sandbox', 'resume', id])
  assert.ok(ids(await ok(['sandbox', 'list', '--format', 'json'])).includes(id))
}))

test('templates are built, published and deleted', async () => {
  const dir = join(home, 'web')
  await mkdir(dir)
  await writeFile(join(dir, 'e2b.Dockerfile'), 'FROM base\nCOPY hello.txt /srv/hello.txt\nRUN cat /srv/hello.txt > /srv/copy\nWORKDIR /srv\n')
  await writeFile(join(dir, 'hello.txt'), 'hello from a file\n')
  const create = ['template', 'create', 'cli-web', '--path', dir, '--cmd', 'sleep 1000', '--ready-cmd', 'test -e /srv/copy', '--cpu-count', '1', '--memory-mb', '512']
  assert.match(await ok([...create, '--min-free-disk-mb', '64']), /cli-web.*finished/)
  const listed = async () => JSON.parse(await ok(['template', 'list', '--format', 'json'])).find((t) => t.aliases.includes('cli-web'))
  const one = await listed()
  assert.equal(one.buildStatus, 'ready')
  assert.match(await ok(['template', 'list']), /cli-web/)
  await withSandbox({ template: 'cli-web' }, async (sandbox) => {
    assert.equal(await ok(['sandbox', 'exec', sandbox.sandboxId, 'cat copy; pwd']), 'hello from a file\n/srv\n')
  })
  assert.match(await ok(['template', 'publish', 'cli-web', '--yes']), /Published as: .*cli-web/)
  assert.equal((await listed()).public, true)
  await ok(['template', 'unpublish', 'cli-web', '--yes'])
  assert.equal((await listed()).public, false)
  await writeFile(join(dir, 'e2b.Dockerfile'), 'FROM base\nRUN exit 3\n')
  const failed = await e2b([...create, '--no-cache'])
  assert.notEqual(failed.code, 0)
  assert.match(failed.out + failed.err, /exit 3.*status 3/)
  await ok(['template', 'delete', 'cli-web', '--yes'])
  assert.equal(await listed(), undefined)
  const none = await e2b(['template', 'delete', 'cli-web', '--yes'])
  assert.match(none.out + none.err, /not found|no such template/i)
})

test('a wrong key is told from a right one', async () => {
  const wrong = await e2b(['sandbox', 'list'], { env: { E2B_API_KEY: `e2b_${'0'.repeat(40)}` } })
  assert.notEqual(wrong.code, 0)
  assert.match(wrong.err, /Unauthorized/)
  const none = await e2b(['sandbox', 'list'], { env: { E2B_API_KEY: '' } })
  assert.notEqual(none.code, 0)
  assert.match(none.err, /must be logged in/)
})
