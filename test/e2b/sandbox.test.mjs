// What every program does with a sandbox: commands, terminals, files.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Sandbox, CommandExitError, NotFoundError, wall } from './lib.mjs'

let sandbox

before(async () => {
  sandbox = await Sandbox.create('base', {
    timeoutMs: 300_000,
    metadata: { purpose: 'sdk' },
    envs: { FROM_CREATE: 'yes' },
  })
})

after(async () => {
  await sandbox?.kill()
})

test('run returns output, error and exit code', async () => {
  const r = await sandbox.commands.run('echo out; echo err >&2; echo $FROM_CREATE')
  assert.equal(r.exitCode, 0)
  assert.equal(r.stdout, 'out\nyes\n')
  assert.equal(r.stderr, 'err\n')
})

test('a failing command throws with its code', async () => {
  await assert.rejects(sandbox.commands.run('exit 7'), (e) => e instanceof CommandExitError && e.exitCode === 7)
})

test('commands are uid 1000 in the home directory, and root where asked', async () => {
  assert.equal((await sandbox.commands.run('id -u; pwd')).stdout, '1000\n/home/user\n')
  const asRoot = sandbox.commands.run('id -u', { user: 'root' })
  if (wall === 'process') await assert.rejects(asRoot, /runs no command as root/)
  else assert.equal((await asRoot).stdout, '0\n')
})

test('cwd and envs of one command', async () => {
  const r = await sandbox.commands.run('pwd; echo $ONE', { cwd: '/tmp', envs: { ONE: '1' } })
  assert.equal(r.stdout, '/tmp\n1\n')
})

test('output streams while the command runs', async () => {
  const seen = []
  let second
  const gate = new Promise((resolve) => { second = resolve })
  const handle = await sandbox.commands.run('echo one; read line; echo "$line"', {
    background: true,
    stdin: true,
    onStdout: (s) => { seen.push(s); second() },
  })
  await gate // the first line is here, and the command still waits
  await sandbox.commands.sendStdin(handle.pid, 'two\n')
  const r = await handle.wait()
  assert.equal(r.exitCode, 0)
  assert.equal(seen.join(''), 'one\ntwo\n')
})

test('stdin to its end', async () => {
  const handle = await sandbox.commands.run('wc -c', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'x'.repeat(100_000))
  await sandbox.commands.closeStdin(handle.pid)
  const r = await handle.wait()
  assert.equal(r.stdout.trim(), '100000')
})

test('background: list, connect, kill', async () => {
  const handle = await sandbox.commands.run('sleep 1000', { background: true })
  const listed = await sandbox.commands.list()
  assert.ok(listed.some((p) => p.pid === handle.pid))
  const again = await sandbox.commands.connect(handle.pid)
  assert.equal(await sandbox.commands.kill(handle.pid), true)
  await assert.rejects(again.wait(), CommandExitError)
  await assert.rejects(handle.wait(), CommandExitError)
  assert.equal(await sandbox.commands.kill(handle.pid), false)
})

test('a command timeout ends the command', async () => {
  await assert.rejects(sandbox.commands.run('sleep 1000', { timeoutMs: 500 }))
})

test('a terminal: size, input, kill', async () => {
  let text = ''
  let wake = () => {}
  const until = async (want) => {
    while (!text.includes(want)) await new Promise((resolve) => { wake = resolve })
  }
  const pty = await sandbox.pty.create({
    cols: 91,
    rows: 33,
    timeoutMs: 60_000,
    onData: (d) => { text += new TextDecoder().decode(d); wake() },
  })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size\n'))
  await until('33 91')
  await sandbox.pty.resize(pty.pid, { cols: 120, rows: 40 })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size\n'))
  await until('40 120')
  assert.equal(await sandbox.pty.kill(pty.pid), true)
  await assert.rejects(pty.wait())
})

test('files: write, read, list, info, rename, remove', async () => {
  const dir = '/home/user/files'
  assert.equal(await sandbox.files.makeDir(dir), true)
  assert.equal(await sandbox.files.makeDir(dir), false)
  await sandbox.files.write(`${dir}/a.txt`, 'hello')
  assert.equal(await sandbox.files.read(`${dir}/a.txt`), 'hello')
  const bytes = new Uint8Array(256).map((_, i) => i)
  await sandbox.files.write(`${dir}/b.bin`, new Blob([bytes]))
  assert.deepEqual(await sandbox.files.read(`${dir}/b.bin`, { format: 'bytes' }), bytes)
  const info = await sandbox.files.getInfo(`${dir}/a.txt`)
  assert.equal(info.size, 5)
  assert.equal(info.owner, 'user')
  await sandbox.files.rename(`${dir}/a.txt`, `${dir}/c.txt`)
  assert.deepEqual((await sandbox.files.list(dir)).map((e) => e.name).sort(), ['b.bin', 'c.txt'])
  assert.equal(await sandbox.files.exists(`${dir}/a.txt`), false)
  await sandbox.files.remove(dir)
  assert.equal(await sandbox.files.exists(dir), false)
  await assert.rejects(sandbox.files.read(`${dir}/c.txt`), NotFoundError)
})

test('several files at once, and a relative path', async () => {
  const written = await sandbox.files.write([
    { path: 'multi/one.txt', data: '1' },
    { path: 'multi/two.txt', data: '2' },
  ])
  assert.equal(written.length, 2)
  assert.equal((await sandbox.commands.run('cat multi/one.txt multi/two.txt')).stdout, '12')
})

test('files are written with the rights of their user', async () => {
  await assert.rejects(sandbox.files.write('/root/x', 'no'))
  if (wall === 'process') {
    await assert.rejects(sandbox.files.write('/root/x', 'no', { user: 'root' }), /does not act as root/)
    return
  }
  await sandbox.files.write('/root/x', 'yes', { user: 'root' })
  assert.equal((await sandbox.commands.run('cat /root/x', { user: 'root' })).stdout, 'yes')
})

test('watching a directory', async () => {
  await sandbox.files.makeDir('/home/user/watched')
  let seen
  const event = new Promise((resolve) => { seen = resolve })
  const handle = await sandbox.files.watchDir('/home/user/watched', (e) => { if (e.name === 'new.txt') seen(e) })
  await sandbox.files.write('/home/user/watched/new.txt', 'x')
  await event
  await handle.stop()
})

test('the sandbox is listed, described, connected to and extended', async () => {
  const page = await Sandbox.list({ query: { metadata: { purpose: 'sdk' } } }).nextItems()
  assert.ok(page.some((s) => s.sandboxId === sandbox.sandboxId))
  const info = await sandbox.getInfo()
  assert.equal(info.metadata.purpose, 'sdk')
  await sandbox.setTimeout(600_000)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('echo again')).stdout, 'again\n')
  assert.equal(await sandbox.isRunning(), true)
})

test('kill ends it, once', async () => {
  const other = await Sandbox.create()
  assert.equal(await other.kill(), true)
  assert.equal(await other.kill(), false)
})
