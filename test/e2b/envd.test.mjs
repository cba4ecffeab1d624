// envd's files through the unmodified SDK, and beneath it. The environment
// holds E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, before, test } from 'node:test'
import { gzipSync } from 'node:zlib'
import {
  AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError, NotEnoughSpaceError, Sandbox, SandboxError, wall,
} from './lib.mjs'
import { patience } from './patience.mjs'
import { as, at, http, stream, unary, until, within } from './raw.mjs'

let sandbox
const run = async (script, opts) => (await sandbox.commands.run(script, opts)).stdout
const octets = { 'Content-Type': 'application/octet-stream' }
const get = (path, headers) => http(sandbox, 'GET', `/files?path=${encodeURIComponent(path)}`, { headers })
const put = (path, body, headers) =>
  http(sandbox, 'POST', `/files?path=${encodeURIComponent(path)}`, { body, headers: { ...octets, ...headers } })

before(async () => {
  sandbox = await Sandbox.create('base', { timeoutMs: 300_000 })
})

after(async () => {
  await sandbox?.kill()
})

test('the version that is reported has every feature that clients ask for', async () => {
  const { envdVersion } = await sandbox.getInfo()
  const [major, minor, patch] = envdVersion.split('.').map(Number)
  assert.ok(major > 0 || minor > 6 || patch >= 4, envdVersion)
})

test('read and write: text, bytes, blob, stream, nothing', async () => {
  const bytes = new Uint8Array(70_000).map((_, i) => i * 7)
  for (const useOctetStream of [false, true]) {
    for (const data of [bytes.buffer, new Blob([bytes]), new Blob([bytes]).stream()]) {
      const { path, name, type } = await sandbox.files.write('data.bin', data, { useOctetStream })
      assert.deepEqual({ path, name, type }, { path: '/home/user/data.bin', name: 'data.bin', type: 'file' })
      assert.deepEqual(await sandbox.files.read('data.bin', { format: 'bytes' }), bytes)
    }
    await sandbox.files.write('empty', '', { useOctetStream })
    assert.equal(await sandbox.files.read('empty'), '')
    assert.equal((await sandbox.files.read('empty', { format: 'bytes' })).length, 0)
  }
  assert.equal(await (await sandbox.files.read('data.bin', { format: 'blob' })).size, bytes.length)
  const parts = []
  for await (const part of await sandbox.files.read('data.bin', { format: 'stream' })) parts.push(part)
  assert.deepEqual(new Uint8Array(Buffer.concat(parts)), bytes)
})

test('100 MiB go in and come out whole', async () => {
  const block = Buffer.alloc(1 << 20, 'carboy')
  const blocks = Array.from({ length: 100 }, () => block)
  const sum = blocks.reduce((h, b) => h.update(b), createHash('sha256')).digest('hex')
  await sandbox.files.write('big', new Blob(blocks))
  assert.equal((await run('sha256sum < big')).slice(0, 64), sum)
  const back = createHash('sha256')
  for await (const part of await sandbox.files.read('big', { format: 'stream' })) back.update(part)
  assert.equal(back.digest('hex'), sum)
  await sandbox.files.remove('big')
})

test('gzip both ways', async () => {
  const text = 'the same again and again\n'.repeat(10_000)
  await sandbox.files.write('zipped', text, { gzip: true })
  assert.equal((await sandbox.files.getInfo('zipped')).size, text.length)
  assert.equal(await sandbox.files.read('zipped', { gzip: true }), text)
  const [url, headers] = at(sandbox, '/files?path=zipped', { 'Accept-Encoding': 'gzip' })
  const raw = await fetch(url, { headers })
  assert.equal(raw.headers.get('content-encoding'), 'gzip')
  assert.match(raw.headers.get('vary'), /Accept-Encoding/)
  await raw.arrayBuffer()
  assert.equal((await get('zipped', { 'Accept-Encoding': 'identity;q=0, br' })).status, 406)
  assert.equal((await put('zipped', gzipSync('x'), { 'Content-Encoding': 'br' })).status, 400)
  assert.equal((await put('zipped', 'no gzip', { 'Content-Encoding': 'gzip' })).status, 400)
})

test('ranges and conditions', async () => {
  await sandbox.files.write('digits', '0123456789')
  const part = await get('digits', { Range: 'bytes=2-4' })
  assert.equal(part.status, 206)
  assert.equal(part.text, '234')
  assert.equal(part.headers.get('content-range'), 'bytes 2-4/10')
  assert.equal((await get('digits', { Range: 'bytes=20-' })).status, 416)
  const whole = await get('digits')
  assert.match(whole.headers.get('content-disposition'), /inline; filename=digits/)
  assert.equal((await get('digits', { 'If-Modified-Since': whole.headers.get('last-modified') })).status, 304)
  assert.equal((await get('digits', { 'If-Modified-Since': new Date(0).toUTCString() })).status, 200)
})

test('several files in one upload, each with its own path', async () => {
  const written = await sandbox.files.write([
    { path: 'many/a', data: 'a' }, { path: '/tmp/many/b', data: 'b' }, { path: '~/many/c/d', data: 'c' },
  ])
  assert.deepEqual(written.map((w) => w.path), ['/home/user/many/a', '/tmp/many/b', '/home/user/many/c/d'])
  await assert.rejects(sandbox.files.write([{ path: 'twice', data: '1' }, { path: '~/twice', data: '2' }]), InvalidArgumentError)
  assert.deepEqual(await sandbox.files.write([]), [])
})

test('paths: home, relative, dots, others\' homes, what is not a file', async () => {
  await sandbox.files.write('dir/file', 'x')
  for (const path of ['dir/file', '~/dir/file', './dir/../dir/file', '/home/user/dir/file', '/../home/user//dir/file']) {
    assert.equal(await sandbox.files.read(path), 'x', path)
  }
  await assert.rejects(sandbox.files.read('~root/x'), InvalidArgumentError)
  await assert.rejects(sandbox.files.read('dir'), InvalidArgumentError)
  await assert.rejects(sandbox.files.write('dir', 'x'), InvalidArgumentError)
  await assert.rejects(sandbox.files.read('missing'), FileNotFoundError)
  await assert.rejects(sandbox.files.list('missing'), FileNotFoundError)
  await assert.rejects(sandbox.files.list('dir/file'), InvalidArgumentError)
  await assert.rejects(sandbox.files.getInfo('missing'), FileNotFoundError)
  await assert.rejects(sandbox.files.rename('missing', 'x'), FileNotFoundError)
  await assert.rejects(sandbox.files.makeDir('dir/file'), InvalidArgumentError)
  await assert.rejects(sandbox.files.watchDir('missing', () => {}), FileNotFoundError)
  await assert.rejects(sandbox.files.watchDir('dir/file', () => {}), InvalidArgumentError)
  assert.equal(await sandbox.files.exists('dir/missing'), false)
  await sandbox.files.remove('missing')
  assert.equal((await http(sandbox, 'POST', '/files', { body: 'x', headers: octets })).status, 400)
  assert.equal((await http(sandbox, 'POST', '/files?path=x', { body: 'x', headers: { 'Content-Type': 'text/plain' } })).status, 400)
  assert.equal((await http(sandbox, 'GET', '/files')).status, 400)
})

test('users own what they write, and may no more than they may', async () => {
  const root = { user: 'root' }
  if (wall === 'process') {
    // Nothing is done as root behind the wall that shares the host's kernel.
    for (const attempt of [() => sandbox.files.write('x', 'x', root), () => sandbox.files.list('/', root), () => sandbox.files.read('x', root)]) {
      await assert.rejects(attempt(), (e) => e instanceof SandboxError && /not act as root/.test(e.message))
    }
  } else {
    await sandbox.files.write('/root/only', 'secret', root)
    assert.equal(await run('stat -c %U:%a /root/only', root), 'root:644\n')
    assert.equal(await sandbox.files.read('/root/only', root), 'secret')
  }
  for (const attempt of [
    () => sandbox.files.read('/root/only'), () => sandbox.files.write('/root/only', 'x'), () => sandbox.files.list('/root'),
    () => sandbox.files.remove('/root/only'), () => sandbox.files.rename('/root/only', '/tmp/only'), () => sandbox.files.makeDir('/root/dir'),
    () => sandbox.files.getInfo('/root/only'), () => sandbox.files.watchDir('/root', () => {}),
  ]) {
    await assert.rejects(attempt(), (e) => e instanceof SandboxError && /permission denied to user "user".*root/.test(e.message))
  }
  await sandbox.files.write('new/dir/mine', 'x')
  assert.equal(await run('stat -c %U:%a new new/dir new/dir/mine'), 'user:755\nuser:755\nuser:644\n')
  if (wall === 'process') {
    await assert.rejects(sandbox.files.write('/new/dir/mine', 'x'), SandboxError)
  } else { // as at E2B, what is new belongs to who writes it, below / too
    await sandbox.files.write('/new/dir/mine', 'x')
    await sandbox.files.write('/mine', 'x')
    await sandbox.files.makeDir('/made/dir')
    await sandbox.files.write('to-move', 'x')
    await sandbox.files.rename('to-move', '/srv/moved/mine')
    assert.equal(await run('stat -c %U:%G:%a /new /new/dir /new/dir/mine /mine /made /made/dir /srv/moved /srv/moved/mine'),
      ['755', '755', '644', '644', '755', '755', '755', '644'].map((mode) => `user:user:${mode}\n`).join(''))
    await assert.rejects(sandbox.files.write('/etc/passwd', 'x'), SandboxError)
  }
  await assert.rejects(sandbox.files.read('x', { user: 'nobody-here' }), AuthenticationError)
  await assert.rejects(sandbox.files.list('/', { user: 'nobody-here' }), AuthenticationError)
  await assert.rejects(sandbox.files.write('x', 'x', { user: 'nobody-here' }), AuthenticationError)
})

test('what is told of an entry', async () => {
  await sandbox.files.write('info/file', 'hello')
  await run('cd info && chmod 640 file && ln -s file good && ln -s /nowhere broken && mkfifo pipe && touch -d @86400 old')
  const info = await sandbox.files.getInfo('info/file')
  assert.deepEqual(
    [info.name, info.type, info.path, info.size, info.mode, info.permissions, info.owner, info.group, info.symlinkTarget],
    ['file', FileType.FILE, '/home/user/info/file', 5, 0o640, '-rw-r-----', 'user', 'user', undefined])
  assert.equal((await sandbox.files.getInfo('info/old')).modifiedTime.getTime(), 86_400_000)
  const link = await sandbox.files.getInfo('info/good')
  assert.deepEqual([link.type, link.symlinkTarget, link.size], [FileType.FILE, '/home/user/info/file', 4])
  const broken = await unary(sandbox, 'filesystem.Filesystem/Stat', { path: 'info/broken' })
  assert.deepEqual([broken.entry.type, broken.entry.symlinkTarget], [undefined, '/home/user/info/broken'])
  assert.deepEqual((await sandbox.files.list('info')).map((e) => e.name), ['file', 'good', 'old'])
  const all = await unary(sandbox, 'filesystem.Filesystem/ListDir', { path: 'info' })
  assert.deepEqual(all.entries.map((e) => e.name), ['broken', 'file', 'good', 'old', 'pipe'])
})

test('lists go as deep as they are asked to', async () => {
  await run('mkdir -p deep/1/2/3 && touch deep/1/2/3/4 && ln -s 1 deep/link && ln -s deep deeplink')
  const names = async (depth, path = 'deep') => (await sandbox.files.list(path, { depth })).map((e) => e.path.replace('/home/user/', ''))
  assert.deepEqual(await names(1), ['deep/1', 'deep/link'])
  assert.deepEqual(await names(3), ['deep/1', 'deep/1/2', 'deep/1/2/3', 'deep/link'])
  assert.deepEqual(await names(1, 'deeplink'), ['deeplink/1', 'deeplink/link'])
  await assert.rejects(sandbox.files.list('deep', { depth: 0 }), InvalidArgumentError)
})

test('moving and removing', async () => {
  await run('mkdir -p move/full && touch move/full/x move/a && echo new > move/b')
  await sandbox.files.rename('move/b', 'move/a')
  assert.equal(await sandbox.files.read('move/a'), 'new\n')
  const moved = await sandbox.files.rename('move/a', 'move/made/on/the/way')
  assert.equal(moved.path, '/home/user/move/made/on/the/way')
  await assert.rejects(sandbox.files.rename('move/made', 'move/full'), SandboxError)
  await sandbox.files.remove('move')
  assert.equal(await sandbox.files.exists('move'), false)
})

test('metadata is kept with a file, replaced as a whole, and listed', async () => {
  const written = await sandbox.files.write('meta', 'x', { metadata: { Colour: 'red', size: 'small one' } })
  assert.deepEqual(written.metadata, { colour: 'red', size: 'small one' })
  assert.deepEqual((await sandbox.files.getInfo('meta')).metadata, { colour: 'red', size: 'small one' })
  await sandbox.files.write('meta', 'y', { metadata: { colour: 'blue' }, useOctetStream: true })
  assert.deepEqual((await sandbox.files.list('.')).find((e) => e.name === 'meta').metadata, { colour: 'blue' })
  await sandbox.files.write('meta', 'z')
  assert.equal((await sandbox.files.getInfo('meta')).metadata, undefined)
  assert.equal((await put('meta', 'x', { 'X-Metadata-Key': 'v'.repeat(5000) })).status, 400)
})

test('compose joins files and removes them', async () => {
  const compose = (message) => http(sandbox, 'POST', '/files/compose', { body: JSON.stringify(message), headers: { 'Content-Type': 'application/json' } })
  await sandbox.files.write([{ path: 'p1', data: 'one ' }, { path: 'p2', data: 'two' }])
  const { status, text } = await compose({ source_paths: ['p1', 'p2'], destination: 'made/whole' })
  assert.equal(status, 200)
  assert.deepEqual(JSON.parse(text), { path: '/home/user/made/whole', name: 'whole', type: 'file' })
  assert.equal(await sandbox.files.read('made/whole'), 'one two')
  assert.equal(await sandbox.files.exists('p1'), false)
  assert.equal((await compose({ source_paths: ['p1'], destination: 'x' })).status, 404)
  assert.equal((await compose({ source_paths: [], destination: 'x' })).status, 400)
  assert.equal((await compose({ source_paths: ['made/whole'], destination: '/root/x', username: 'nobody-here' })).status, 401)
})

test('signed links: reading and writing, with and without an end', async () => {
  await sandbox.files.write('signed', 'by me')
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49983' }
  const link = async (made) => { const u = new URL(await made); return new URL(u.pathname + u.search, process.env.E2B_SANDBOX_URL) }
  const read = async (url, more) => { const r = await fetch(url, { headers: { ...headers, ...more } }); return [r.status, await r.text()] }
  for (const opts of [{}, { useSignatureExpiration: 60 }, { user: 'user' }, { user: 'user', useSignatureExpiration: 60 }]) {
    assert.deepEqual(await read(await link(sandbox.downloadUrl('signed', opts))), [200, 'by me'])
  }
  for (const opts of [{}, { useSignatureExpiration: 60 }]) {
    const form = new FormData()
    form.append('file', new Blob(['by a link']), 'ignored')
    const up = await fetch(await link(sandbox.uploadUrl('uploaded', opts)), { method: 'POST', headers, body: form })
    assert.equal(up.status, 200, await up.text())
    assert.equal(await sandbox.files.read('uploaded'), 'by a link')
  }
  const form = new FormData()
  form.append('file', new Blob(['named by the form']), 'in-form')
  assert.equal((await fetch(await link(sandbox.uploadUrl()), { method: 'POST', headers, body: form })).status, 200)
  assert.equal(await sandbox.files.read('in-form'), 'named by the form')

  // What was signed is what is allowed, and no more.
  const good = await link(sandbox.downloadUrl('signed', { useSignatureExpiration: 60 }))
  const change = (name, value) => { const u = new URL(good); if (value === undefined) u.searchParams.delete(name); else u.searchParams.set(name, value); return u }
  const message = async (url, more) => { const [status, text] = await read(url, more); assert.equal(status, 401, text); const { code, message, ...rest } = JSON.parse(text); assert.deepEqual([code, rest], [401, {}]); return message }
  assert.match(await message(change('path', 'uploaded')), /signature/)
  assert.match(await message(change('username', 'root')), /signature/)
  assert.match(await message(change('signature', undefined)), /signature|token/)
  assert.match(await message(change('signature', 'v1_AAAA')), /signature/)
  assert.match(await message(change('signature_expiration', String(2 ** 40))), /signature/)
  assert.match(await message(change('signature_expiration', undefined)), /signature/)
  assert.match(await message(good, { 'X-Access-Token': 'wrong' }), /token/)
  const write = await fetch(good, { method: 'POST', headers: { ...headers, ...octets }, body: 'x' })
  assert.equal(write.status, 401)
  const list = await fetch(new URL('/envs' + good.search, good), { headers })
  assert.equal(list.status, 401)
  const ended = await link(sandbox.downloadUrl('signed', { useSignatureExpiration: -5 }))
  assert.match(await message(ended), /expired/)
  assert.deepEqual(await read(good), [200, 'by me'])
})

test('nothing without the token, and not what is the daemon\'s own', async () => {
  for (const [method, path] of [['GET', '/envs'], ['GET', '/metrics'], ['POST', '/process.Process/List'], ['GET', '/files?path=x'], ['POST', '/files?path=x']]) {
    const res = await http(sandbox, method, path, { headers: { 'X-Access-Token': undefined, 'Content-Type': 'application/json' }, body: method === 'POST' ? '{}' : undefined })
    assert.equal(res.status, 401, path)
  }
  for (const path of ['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw', '/upgrade']) {
    const res = await http(sandbox, 'POST', path, { body: '{}' })
    assert.equal(res.status, 404, path)
    assert.match(JSON.parse(res.text).message, /daemon/, path)
  }
  assert.equal((await http(sandbox, 'GET', '/health')).status, 204)
  const metrics = JSON.parse((await http(sandbox, 'GET', '/metrics')).text)
  for (const name of ['ts', 'cpu_count', 'cpu_used_pct', 'mem_total', 'mem_used', 'mem_cache', 'mem_total_mib', 'mem_used_mib', 'disk_used', 'disk_total']) {
    assert.equal(typeof metrics[name], 'number', name)
  }
})

test('a full file system is told as one, and no half file is left', async () => {
  const left = Number(await run('df -B1 --output=avail /dev/shm | tail -1'))
  assert.ok(left < 1 << 28, `/dev/shm has ${left} bytes`)
  const block = Buffer.alloc(1 << 20)
  const blob = new Blob(Array.from({ length: Math.ceil(left / block.length) + 1 }, () => block))
  await assert.rejects(sandbox.files.write('/dev/shm/full', blob), NotEnoughSpaceError)
  assert.equal(await sandbox.files.exists('/dev/shm/full'), false)
})

test('names of any bytes, and files that are none', async () => {
  const long = 'n'.repeat(255)
  for (const name of ['two\nlines', 'blank and "quote"', 'ä→☃', '%2e%2e', '-rf', long]) {
    await sandbox.files.write(`odd/${name}`, name, { useOctetStream: true })
    assert.equal(await sandbox.files.read(`odd/${name}`), name)
    assert.equal((await sandbox.files.getInfo(`odd/${name}`)).name, name)
  }
  await assert.rejects(sandbox.files.write(`odd/${long}n`, 'x'), InvalidArgumentError)
  await assert.rejects(sandbox.files.read('zero\0byte'), InvalidArgumentError)
  await run("cd odd && printf bytes > $'\\xff\\xfe' && rm -f n* && mkfifo pipe && ln -s /dev/zero zero && ln -s loop loop")
  assert.ok((await sandbox.files.list('odd')).some((e) => e.name.includes('\ufffd')))
  const raw = await http(sandbox, 'GET', '/files?path=odd/%FF%FE')
  assert.deepEqual([raw.status, raw.text], [200, 'bytes'])
  for (const name of ['pipe', 'zero']) {
    await assert.rejects(within(sandbox.files.read(`odd/${name}`), name), InvalidArgumentError)
    await assert.rejects(within(sandbox.files.write(`odd/${name}`, 'x'), name), InvalidArgumentError)
  }
  await assert.rejects(within(sandbox.files.read('odd/loop'), 'loop'), SandboxError)
  await sandbox.files.remove('odd')
})

// watched collects events and waits for those that are wanted, in any order.
async function watched(path, opts) {
  const events = []
  const handle = await sandbox.files.watchDir(path, (e) => { events.push(e) }, opts)
  const wait = (...want) => until(`events ${want}, got ${events.map((e) => `${e.type} ${e.name}`)}`,
    () => want.every((w) => events.some((e) => `${e.type} ${e.name}` === w)))
  return { events, wait, stop: () => handle.stop() }
}

test('watching: what is created, written, renamed, removed, and its mode', async () => {
  await sandbox.files.makeDir('w')
  const w = await watched('w')
  await sandbox.files.write('w/f', 'x')
  await w.wait('create f', 'write f')
  await run('chmod 600 w/f && mv w/f w/g && rm w/g && mkdir -p w/sub && touch w/sub/unseen')
  await w.wait('chmod f', 'rename f', 'create g', 'remove g', 'create sub')
  assert.ok(!w.events.some((e) => e.name.includes('/')))
  await w.stop()
})

test('watching all below: new directories, moved ones, gone ones, entries', async () => {
  await run('mkdir -p r/a/b')
  const w = await watched('r', { recursive: true, includeEntry: true })
  await run('echo x > r/a/b/f && mkdir -p r/new/deep && echo x > r/new/deep/f')
  await w.wait('create a/b/f', 'write a/b/f', 'create new', 'create new/deep', 'create new/deep/f')
  assert.equal(w.events.find((e) => e.name === 'a/b/f' && e.type === 'create').entry.path, '/home/user/r/a/b/f')
  await run('mv r/new r/moved && echo y >> r/moved/deep/f')
  await w.wait('rename new', 'create moved', 'write moved/deep/f')
  await run('rm -rf r/moved && mkdir r/moved && touch r/moved/again')
  await w.wait('remove moved/deep/f', 'remove moved', 'create moved/again')
  await w.stop()
})

test('watching by asking: events once, until the watcher is removed', async () => {
  const fs = (method, message) => unary(sandbox, `filesystem.Filesystem/${method}`, message)
  await sandbox.files.makeDir('polled')
  const { watcherId } = await fs('CreateWatcher', { path: 'polled', recursive: true })
  await run('mkdir polled/d && touch polled/d/f')
  const seen = []
  await until('the event', async () => {
    seen.push(...((await fs('GetWatcherEvents', { watcherId })).events ?? []))
    return seen.some((e) => e.name === 'd/f' && e.type === 'EVENT_TYPE_CREATE')
  })
  assert.equal(seen.filter((e) => e.name === 'd/f' && e.type === 'EVENT_TYPE_CREATE').length, 1)
  await fs('RemoveWatcher', { watcherId })
  await assert.rejects(fs('GetWatcherEvents', { watcherId }), (e) => e.code === 'not_found')
  await assert.rejects(fs('RemoveWatcher', { watcherId }), (e) => e.code === 'not_found')
})

test('a hundred watchers at once, streamed and polled', async () => {
  await sandbox.files.makeDir('crowd')
  const all = await Promise.all(Array.from({ length: 100 }, () => watched('crowd')))
  const ids = await Promise.all(Array.from({ length: 20 }, () => unary(sandbox, 'filesystem.Filesystem/CreateWatcher', { path: 'crowd' })))
  await sandbox.files.write('crowd/f', 'x')
  await Promise.all(all.map((w) => w.wait('create f')))
  await Promise.all(all.map((w) => w.stop()))
  for (const { watcherId } of ids) {
    assert.ok((await unary(sandbox, 'filesystem.Filesystem/GetWatcherEvents', { watcherId })).events.length > 0)
    await unary(sandbox, 'filesystem.Filesystem/RemoveWatcher', { watcherId })
  }
})

test('a watch says when its time is over, and that it lives', async () => {
  await sandbox.files.makeDir('timed')
  const ended = new Promise((resolve) => {
    sandbox.files.watchDir('timed', () => {}, { timeoutMs: 3_000 * patience, onExit: resolve })
  })
  assert.equal((await within(ended, 'the end', 60_000 * patience)).name, 'TimeoutError')
  const events = stream(sandbox, 'filesystem.Filesystem/WatchDir', { path: 'timed' }, { headers: { 'Keepalive-Ping-Interval': '1' } })
  assert.ok((await events.next()).value.start)
  assert.ok((await events.next()).value.keepalive)
  await events.return()
})

test('two uploads at once to one path leave one of the two', async () => {
  const sizes = [3 << 20, 2 << 20]
  for (let i = 0; i < 5; i++) {
    await Promise.all(sizes.map((n, j) => put('same', Buffer.alloc(n, 'ab'[j]))))
    const got = await run('wc -c < same; tr -d a < same | wc -c; tr -d b < same | wc -c')
    assert.match(got, /^(3145728\n0\n3145728|2097152\n2097152\n0)\n$/)
  }
})

test('as another user through the header of a call', async () => {
  const make = (user) => unary(sandbox, 'filesystem.Filesystem/MakeDir', { path: 'by-another' }, as(user))
  if (wall === 'process') {
    await assert.rejects(make('root'), (e) => e.code === 'permission_denied')
    assert.equal((await make('user')).entry.path, '/home/user/by-another')
    return
  }
  assert.equal((await make('root')).entry.path, '/root/by-another')
  assert.equal(await run('stat -c %U /root/by-another', { user: 'root' }), 'root\n')
  await assert.rejects(unary(sandbox, 'filesystem.Filesystem/Stat', { path: 'by-another' }), (e) => e.code === 'not_found')
})
