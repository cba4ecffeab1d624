// envd's Process service through the unmodified SDK, and beneath it. The
// environment holds E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError, TimeoutError, wall } from './lib.mjs'
import { as, http, start, stream, unary, until, within } from './raw.mjs'

const b64 = (s) => Buffer.from(s).toString('base64')
const bash = (script, more = {}) => ({ process: { cmd: '/bin/bash', args: ['-l', '-c', script], ...more } })

let sandbox
// As root nothing runs behind the wall that shares the host's kernel.
const other = wall === 'process' ? 'user' : 'root'
const otherHome = wall === 'process' ? '/home/user' : '/root'

before(async () => {
  sandbox = await Sandbox.create('base', { timeoutMs: 300_000, envs: { FROM_CREATE: 'sandbox' } })
})

after(async () => {
  await sandbox?.kill()
})

test('environment: the sandbox below the command, and what envd always sets', async () => {
  const { stdout } = await sandbox.commands.run('echo $FROM_CREATE $HOME $USER $LOGNAME; env | grep -c ^PATH=')
  assert.equal(stdout, 'sandbox /home/user user user\n1\n')
  const own = await sandbox.commands.run('echo $FROM_CREATE', { envs: { FROM_CREATE: 'command' } })
  assert.equal(own.stdout, 'command\n')
  assert.equal(JSON.parse((await http(sandbox, 'GET', '/envs')).text).FROM_CREATE, 'sandbox')
})

test('the working directory: absolute, relative, home, missing', async () => {
  const at = async (cwd) => (await sandbox.commands.run('pwd', { cwd })).stdout.trim()
  await sandbox.files.makeDir('here')
  assert.equal(await at('/tmp'), '/tmp')
  assert.equal(await at('here'), '/home/user/here')
  assert.equal(await at('~/here'), '/home/user/here')
  assert.equal(await at('~'), '/home/user')
  await assert.rejects(at('/no/such'), (e) => e instanceof InvalidArgumentError && e.message.includes('/no/such'))
  await assert.rejects(at('/etc/passwd'), InvalidArgumentError)
})

test('users: the default, root, one that is not there', async () => {
  assert.equal((await sandbox.commands.run('id -un; echo $HOME; pwd', { user: other })).stdout, `${other}\n${otherHome}\n${otherHome}\n`)
  if (wall === 'process') await assert.rejects(sandbox.commands.run('true', { user: 'root' }), (e) => e instanceof SandboxError && /as root/.test(e.message))
  assert.equal((await sandbox.commands.run('id -un')).stdout, 'user\n')
  await assert.rejects(sandbox.commands.run('true', { user: 'nobody-here' }),
    (e) => e instanceof AuthenticationError && e.message.includes('nobody-here'))
  await assert.rejects(unary(sandbox, 'filesystem.Filesystem/Stat', { path: '/' }, { Authorization: 'Basic %%%' }), (e) => e.code === 'unauthenticated')
})

test('how a command ends: code, status and error', async () => {
  const ends = async (script) => (await start(sandbox, bash(script))).end
  assert.deepEqual(await ends('true'), { exited: true, status: 'exit status 0' })
  assert.deepEqual(await ends('exit 3'), { exitCode: 3, exited: true, status: 'exit status 3', error: 'exit status 3' })
  assert.deepEqual(await ends('kill -9 $$'), { exitCode: -1, status: 'signal: killed', error: 'signal: killed' })
  assert.deepEqual(await ends('kill -15 $$'), { exitCode: -1, status: 'signal: terminated', error: 'signal: terminated' })
  await assert.rejects(sandbox.commands.run('kill -9 $$'), (e) => e instanceof CommandExitError && e.exitCode === -1 && e.error === 'signal: killed')
  const gone = await start(sandbox, { process: { cmd: 'no-such-tool' } })
  assert.equal(gone.end.exitCode, 127)
  assert.match(gone.stderr, /not found/)
  const denied = await start(sandbox, { process: { cmd: '/etc/passwd' } })
  assert.equal(denied.end.exitCode, 126)
})

test('a tag names a command in every call', async () => {
  const events = stream(sandbox, 'process.Process/Start', { ...bash('cat', { envs: { ONE: '1' } }), tag: 'one', stdin: true })
  const { pid } = (await events.next()).value.event.start
  const { processes } = await unary(sandbox, 'process.Process/List')
  const listed = processes.find((p) => p.pid === pid)
  assert.equal(listed.tag, 'one')
  assert.deepEqual(listed.config, { cmd: '/bin/bash', args: ['-l', '-c', 'cat'], envs: { ONE: '1' } })
  const second = stream(sandbox, 'process.Process/Connect', { process: { tag: 'one' } })
  assert.equal((await second.next()).value.event.start.pid, pid)
  await unary(sandbox, 'process.Process/SendInput', { process: { tag: 'one' }, input: { stdin: b64('hello') } })
  assert.equal(Buffer.from((await second.next()).value.event.data.stdout, 'base64').toString(), 'hello')
  await unary(sandbox, 'process.Process/CloseStdin', { process: { tag: 'one' } })
  assert.equal((await second.next()).value.event.end.status, 'exit status 0')
  for (const open of [second, events]) {
    for await (const more of open) assert.ok(more.event)
  }
  for (const process of [{ tag: 'two' }, { pid: 4_000_000 }]) {
    for (const method of ['SendInput', 'CloseStdin', 'SendSignal', 'Update']) {
      const message = { process, input: { stdin: '' }, signal: 'SIGNAL_SIGKILL' }
      const known = { SendInput: ['process', 'input'], CloseStdin: ['process'], SendSignal: ['process', 'signal'], Update: ['process'] }[method]
      await assert.rejects(unary(sandbox, `process.Process/${method}`, Object.fromEntries(known.map((k) => [k, message[k]]))),
        (e) => e.code === 'not_found' && /two|4000000/.test(e.message))
    }
  }
})

test('a stream of input, and keep-alives in it', async () => {
  const handle = await sandbox.commands.run('wc -c', { background: true, stdin: true })
  const part = { data: { input: { stdin: b64('x'.repeat(60_000)) } } }
  const sent = stream(sandbox, 'process.Process/StreamInput',
    [{ start: { process: { pid: handle.pid } } }, part, { keepalive: {} }, part])
  const answers = []
  for await (const answer of sent) answers.push(answer)
  assert.deepEqual(answers, [{}])
  await sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout.trim(), '120000')
})

test('no standard input unless it is asked for', async () => {
  assert.equal((await sandbox.commands.run('wc -c')).stdout.trim(), '0')
  const handle = await sandbox.commands.run('sleep 1000', { background: true })
  await assert.rejects(sandbox.commands.sendStdin(handle.pid, 'x'), SandboxError)
  await sandbox.commands.closeStdin(handle.pid)
  assert.equal(await handle.kill(), true)
})

test('the command goes on when its reader goes, and is connected to again', async () => {
  const first = await sandbox.commands.run('read line; echo "got $line"', { background: true, stdin: true, timeoutMs: 0 })
  await first.disconnect()
  const again = await sandbox.commands.connect(first.pid)
  await sandbox.commands.sendStdin(first.pid, 'this\n')
  assert.equal((await again.wait()).stdout, 'got this\n')
  // For a while the end of a command is still told.
  const late = await sandbox.commands.connect(first.pid)
  assert.equal((await late.wait()).exitCode, 0)
  await assert.rejects(sandbox.commands.connect(4_000_000), NotFoundError)
})

test('a timeout ends the command, and none ends nothing', async () => {
  let pid = ''
  for (let ms = 1_000; pid === '' && ms < 60_000; ms *= 4) { // a busy machine may not have begun within a second
    await assert.rejects(sandbox.commands.run('echo $$ > timed; sleep 1000', { timeoutMs: ms }), TimeoutError)
    pid = (await sandbox.files.read('timed').catch(() => '')).trim()
  }
  assert.notEqual(pid, '')
  await until('the command is gone', async () => (await sandbox.commands.run(`kill -0 ${pid} 2>/dev/null || echo gone`)).stdout === 'gone\n')
  const handle = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  assert.equal(await handle.kill(), true)
})

test('keep-alives come as often as was asked', async () => {
  const began = Date.now()
  const { keepalives, end } = await start(sandbox, bash('sleep 1.5'), { 'Keepalive-Ping-Interval': '1' })
  assert.equal(end.exited, true)
  assert.ok(keepalives >= 1 && keepalives <= (Date.now() - began) / 1000, `${keepalives} keep-alives`)
})

test('a terminal has the size, directory, environment and user that were asked for', async () => {
  let text = ''
  const pty = await sandbox.pty.create({
    cols: 91, rows: 33, cwd: '/tmp', envs: { ONE: '1' }, user: other, timeoutMs: 60_000,
    onData: (d) => { text += new TextDecoder().decode(d) },
  })
  const type = (line) => sandbox.pty.sendInput(pty.pid, new TextEncoder().encode(`${line}\n`))
  await type('echo "<$(stty size)|$(pwd)|$ONE|$(id -un)|$TERM>"')
  await until('the answer', () => text.includes(`<33 91|/tmp|1|${other}|xterm-256color>`))
  await sandbox.pty.resize(pty.pid, { cols: 120, rows: 40 })
  await type('echo "<$(stty size)>"')
  await until('the new size', () => text.includes('<40 120>'))
  await assert.rejects(sandbox.commands.sendStdin(pty.pid, 'x'), SandboxError)
  await assert.rejects(sandbox.commands.closeStdin(pty.pid), SandboxError)
  await type('exit 4')
  await assert.rejects(pty.wait(), (e) => e instanceof CommandExitError && e.exitCode === 4)
  await assert.rejects(sandbox.pty.resize(pty.pid, { cols: 1, rows: 1 }), NotFoundError)
  assert.equal(await sandbox.pty.kill(pty.pid), false)
})

test('a terminal is left and connected to again', async () => {
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData() {}, timeoutMs: 0 })
  await pty.disconnect()
  let text = ''
  const again = await sandbox.pty.connect(pty.pid, { onData: (d) => { text += new TextDecoder().decode(d) } })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('echo $((6*7))-yes\n'))
  await until('the answer', () => text.includes('42-yes'))
  assert.equal(await again.kill(), true)
})

test('what a command has no use for is refused', async () => {
  const handle = await sandbox.commands.run('sleep 1000', { background: true })
  const process = { pid: handle.pid }
  const refused = (method, message, code) => assert.rejects(unary(sandbox, `process.Process/${method}`, message), (e) => e.code === code)
  await refused('Update', { process, pty: { size: { cols: 1, rows: 1 } } }, 'invalid_argument')
  await refused('SendInput', { process, input: { pty: '' } }, 'invalid_argument')
  await refused('SendInput', { process }, 'unimplemented')
  await refused('SendSignal', { process }, 'unimplemented')
  await refused('SendSignal', { process: {}, signal: 'SIGNAL_SIGTERM' }, 'invalid_argument')
  await unary(sandbox, 'process.Process/SendSignal', { process, signal: 'SIGNAL_SIGTERM' })
  await assert.rejects(handle.wait(), (e) => e.error === 'signal: terminated')
})

test('output of many bytes, of half a character, of none', async () => {
  let seen = 0
  const r = await sandbox.commands.run('head -c 20000000 /dev/zero | tr "\\0" x', { onStdout: (s) => { seen += s.length } })
  assert.equal(r.stdout.length, 20_000_000)
  assert.equal(seen, 20_000_000)
  assert.equal((await sandbox.commands.run("printf '\\xe2\\x82'; sleep 0.2; printf '\\xac'")).stdout, '€')
  assert.equal((await sandbox.commands.run(':')).stdout, '')
})

test('a reader that stalls holds its own command back, and no other', async () => {
  const events = stream(sandbox, 'process.Process/Start', bash('head -c 64000000 /dev/zero; echo end >&2'))
  const { pid } = (await events.next()).value.event.start
  assert.equal((await within(sandbox.commands.run('echo quick'), 'another command')).stdout, 'quick\n')
  let bytes = 0
  let end
  for await (const { event } of events) {
    if (event.data?.stdout) bytes += Buffer.from(event.data.stdout, 'base64').length
    if (event.end) end = event.end
  }
  assert.equal(bytes, 64_000_000)
  assert.equal(end.status, 'exit status 0')
  assert.ok(pid > 0)
})

test('fifty clients with twenty commands each', async () => {
  const one = async (i) => {
    for (let j = 0; j < 20; j++) assert.equal((await sandbox.commands.run(`echo ${i}-${j}`, { timeoutMs: 0 })).stdout, `${i}-${j}\n`)
  }
  await Promise.all(Array.from({ length: 50 }, (_, i) => one(i)))
})

test('the answer to a call of another user is that user\'s', async () => {
  const got = await start(sandbox, bash('id -un'), as(other))
  assert.equal(got.stdout, `${other}\n`)
})
