// What E2B's clients see when things go wrong beneath them: a sandbox that is
// killed under each kind of open stream, a client that dies in the middle of an
// upload, and more streams than anyone needs. The environment is lib.mjs's.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import './old.mjs'
import { NotFoundError, Sandbox, SandboxNotFoundError, TimeoutError } from './lib.mjs'
import { patience } from './patience.mjs'
import { at, clients, http, stream, unary, until, within } from './raw.mjs'

const settled = (promise) => promise.then((value) => ({ value }), (error) => ({ error }))
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms) })

// endless is a body that ends only when stop is called: not every client
// cancels what it has given up to send.
function endless() {
  let ended = false
  const body = new ReadableStream({
    async pull(c) {
      if (ended) return c.close()
      c.enqueue(new Uint8Array(64 << 10))
      await pause(10)
    },
  })
  return { body, stop: () => { ended = true } }
}

// opened has every kind of stream that a client can have open.
async function opened(sandbox) {
  const streams = {}
  const background = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  streams.command = settled(background.wait())
  streams.foreground = settled(sandbox.commands.run('sleep 1000', { timeoutMs: 0 }))
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, onData() {}, timeoutMs: 0 })
  streams.pty = settled(pty.wait())
  await sandbox.files.makeDir('watched')
  streams.watch = new Promise((resolve) => {
    sandbox.files.watchDir('watched', () => {}, { timeoutMs: 0, onExit: (error) => resolve({ error }) }).catch((error) => resolve({ error }))
  })
  await sandbox.commands.run('truncate -s 64G sparse')
  streams.download = settled(sandbox.files.read('sparse', { format: 'bytes', requestTimeoutMs: 0 }))
  return streams
}

for (const name of clients) {
  test(`${name}: a sandbox killed under each open stream`, async () => {
    const client = await import(name)
    const sandbox = await client.Sandbox.create('base', { timeoutMs: 120_000 })
    const streams = await opened(sandbox)
    const uploads = name === 'e2b' || name === 'e2b-next' // the older gather the whole body first
    const upload = endless()
    if (uploads) streams.upload = settled(sandbox.files.write('up', upload.body))
    await pause(200)
    await sandbox.kill()
    for (const [what, promise] of Object.entries(streams)) {
      const { error } = await within(promise, what)
      // What a client makes of a broken connection is its own: the newer ask
      // whether the sandbox is still there, and say so.
      if (uploads) assert.equal(error?.name, 'TimeoutError', `${what}: ${error}`)
      else assert.match(String(error), what === 'download' ? /terminated/ : /SandboxError.*terminated/, what)
    }
    upload.stop()
    assert.equal(await sandbox.isRunning(), false)
    await assert.rejects(sandbox.commands.run('true', { timeoutMs: 0, requestTimeoutMs: 10_000 * patience }), (e) => e instanceof client.NotFoundError)
    await assert.rejects(sandbox.files.read('x'), (e) => e.name === 'TimeoutError')
    await assert.rejects(sandbox.files.write('x', 'x'), (e) => e.name === 'TimeoutError')
    await assert.rejects(sandbox.files.list('/'), (e) => e.name === 'TimeoutError')
    if (uploads) assert.equal(await sandbox.kill(), false)
  })
}

test('a sandbox whose time is up ends its streams as one that is killed', async () => {
  const sandbox = await Sandbox.create('base', { timeoutMs: 120_000 })
  const handle = await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const waiting = settled(handle.wait())
  await sandbox.setTimeout(1_000)
  const { error } = await within(waiting, 'the end')
  assert.ok(error instanceof TimeoutError, String(error))
  await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
})

let sandbox
before(async () => { sandbox = await Sandbox.create('base', { timeoutMs: 300_000 }) })
after(async () => { await sandbox?.kill() })

const uploader = `
  const [url, headers, chunks] = JSON.parse(process.argv[1])
  let n = 0
  const body = new ReadableStream({
    pull(c) {
      if (n++ < chunks) return c.enqueue(new Uint8Array(65536))
      console.log('sent')
      return new Promise(() => {})
    },
  }, { highWaterMark: 0 })
  fetch(url, { method: 'POST', headers, body, duplex: 'half' }).catch(() => {})
`

test('a client that dies in the middle of an upload leaves no half file', async () => {
  await sandbox.files.write('there-before', 'old')
  for (const name of ['new', 'there-before']) {
    const [url, headers] = at(sandbox, `/files?path=${name}`, { 'Content-Type': 'application/octet-stream' })
    const child = spawn(process.execPath, ['-e', uploader, JSON.stringify([url, headers, 16])], { stdio: ['ignore', 'pipe', 'inherit'] })
    await within(once(child.stdout, 'data'), 'the upload is under way')
    await until('something is there', async () => (await sandbox.files.getInfo(name).catch(() => ({ size: 0 }))).size > 3)
    child.kill('SIGKILL')
    await once(child, 'exit')
    if (name === 'new') {
      await until('the half file is gone', async () => !(await sandbox.files.exists(name)))
    }
    // The next upload does not wait for the dead.
    await within(sandbox.files.write(name, 'whole'), 'the next upload', 10_000 * patience)
    assert.equal(await sandbox.files.read(name), 'whole')
  }
})

test('a client that gives up does the same', async () => {
  const gone = new AbortController()
  const { body, stop } = endless()
  const writing = settled(sandbox.files.write('given-up', body, { signal: gone.signal }))
  await until('something is there', async () => sandbox.files.exists('given-up'))
  gone.abort()
  assert.ok((await writing).error)
  stop()
  await until('the half file is gone', async () => !(await sandbox.files.exists('given-up')))
})

test('a client that leaves a download, a watch or a terminal leaves nothing open', async () => {
  const gone = new AbortController()
  await sandbox.commands.run('truncate -s 64G sparse')
  const reading = settled(sandbox.files.read('sparse', { format: 'bytes', signal: gone.signal, requestTimeoutMs: 0 }))
  await pause(100)
  gone.abort()
  assert.ok((await reading).error)
  for (let i = 0; i < 300; i++) { // more than may be open at once
    const watch = await sandbox.files.watchDir('/tmp', () => {}, { timeoutMs: 0 })
    await watch.stop()
  }
  await sandbox.files.remove('sparse')
})

test('a thousand idle commands are followed at once', async () => {
  const n = 1000
  const quickest = async () => {
    const took = []
    for (let i = 0; i < 5; i++) {
      const t = Date.now()
      assert.equal((await sandbox.commands.run('echo quick')).stdout, 'quick\n')
      took.push(Date.now() - t)
    }
    return Math.min(...took)
  }
  const alone = await quickest()
  const idle = await unary(sandbox, 'process.Process/List')
  const { pid } = await sandbox.commands.run('sleep 1000', { background: true })
  const stop = new AbortController()
  const open = Array.from({ length: n }, () => stream(sandbox, 'process.Process/Connect', { process: { pid } }, { signal: stop.signal }))
  for (const events of open) assert.equal((await within(events.next(), 'the start', 30_000 * patience)).value.event.start.pid, pid)
  const beside = await quickest()
  assert.ok(beside < 20 * alone + 1_000, `one more command took ${beside} ms, and ${alone} ms without them`)
  assert.equal((await unary(sandbox, 'process.Process/List')).processes.length, (idle.processes?.length ?? 0) + 1)
  await sandbox.commands.kill(pid)
  for (const events of open) assert.equal((await within(events.next(), 'the end', 30_000 * patience)).value.event.end.status, 'signal: killed')
  stop.abort()
  assert.equal((await http(sandbox, 'GET', '/health')).status, 204)
})

test('a command that ends while nobody follows is told for a while, and then unknown', async () => {
  const handle = await sandbox.commands.run('exit 3', { background: true, timeoutMs: 0 })
  await handle.disconnect()
  const again = await sandbox.commands.connect(handle.pid)
  await assert.rejects(again.wait(), (e) => e.exitCode === 3)
  await assert.rejects(sandbox.commands.connect(3_999_999), NotFoundError)
})
