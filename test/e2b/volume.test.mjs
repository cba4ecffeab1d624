// Volumes: disks that outlive sandboxes, and what is in them.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import sdk, { Sandbox, Volume, AuthenticationError, api, request } from './lib.mjs'

const { VolumeError, VolumeNotFoundError, VolumePathNotFoundError } = sdk

// withVolume makes a volume for as long as f runs.
async function withVolume(f) {
  const volume = await Volume.create(`v-${randomBytes(6).toString('hex')}`)
  try {
    return await f(volume)
  } finally {
    await Volume.destroy(volume.volumeId)
  }
}

test('a volume is made, found, listed and destroyed', async () => {
  const name = `life-${randomBytes(6).toString('hex')}`
  const made = await Volume.create(name)
  assert.equal(made.name, name)
  assert.ok(made.token)
  await assert.rejects(Volume.create(name), (e) => e instanceof VolumeError && /taken/.test(e.message))
  await assert.rejects(Volume.create('no good'), VolumeError)
  const info = await Volume.getInfo(made.volumeId)
  assert.equal(info.name, name)
  const again = await Volume.connect(made.volumeId)
  assert.equal(again.name, name)
  assert.ok((await Volume.list()).some((v) => v.volumeId === made.volumeId && v.name === name))
  assert.equal(await Volume.destroy(made.volumeId), true)
  assert.equal(await Volume.destroy(made.volumeId), false)
  await assert.rejects(Volume.getInfo(made.volumeId), VolumeNotFoundError)
})

test('files and directories of a volume', () => withVolume(async (v) => {
  await assert.rejects(v.readFile('/none'), VolumePathNotFoundError)
  const written = await v.writeFile('/a/b.txt', 'hello', { force: true, mode: 0o640, uid: 7, gid: 8 })
  assert.equal(written.path, '/a/b.txt')
  assert.equal(written.name, 'b.txt')
  assert.equal(written.type, 'file')
  assert.equal(written.size, 5)
  assert.deepEqual([written.mode, written.uid, written.gid], [0o640, 7, 8])
  assert.ok(written.mtime instanceof Date && Date.now() - written.mtime < 60_000)
  assert.equal(await v.readFile('/a/b.txt'), 'hello')
  assert.deepEqual(Buffer.from(await v.readFile('/a/b.txt', { format: 'bytes' })), Buffer.from('hello'))
  assert.equal(await (await v.readFile('/a/b.txt', { format: 'blob' })).text(), 'hello')
  await assert.rejects(v.writeFile('/a/b.txt', 'again'), VolumeError)
  await v.writeFile('/a/b.txt', 'again', { force: true })
  assert.equal(await v.readFile('a/b.txt'), 'again')
  await v.writeFile('/empty', '')
  assert.equal(await v.readFile('/empty'), '')

  await assert.rejects(v.makeDir('/x/y/z'), VolumePathNotFoundError)
  const dir = await v.makeDir('/x/y/z', { force: true })
  assert.equal(dir.type, 'directory')
  await assert.rejects(v.makeDir('/x/y/z'), VolumeError)
  assert.deepEqual((await v.list('/')).map((e) => e.path), ['/a', '/empty', '/x'])
  assert.deepEqual((await v.list('/', { depth: 2 })).map((e) => e.path), ['/a', '/a/b.txt', '/empty', '/x', '/x/y'])
  await assert.rejects(v.list('/none'), VolumePathNotFoundError)

  const changed = await v.updateMetadata('/a/b.txt', { mode: 0o600 })
  assert.equal(changed.mode, 0o600)
  assert.equal((await v.getInfo('/a/b.txt')).mode, 0o600)
  assert.equal(await v.exists('/a'), true)
  await v.remove('/a')
  assert.equal(await v.exists('/a'), false)
  await assert.rejects(v.remove('/a'), VolumePathNotFoundError)
  await assert.rejects(v.remove('/'), VolumeError)
}))

test('a large file streams both ways', () => withVolume(async (v) => {
  const chunk = randomBytes(1 << 20)
  const body = new ReadableStream({
    n: 0,
    pull(c) {
      if (this.n++ === 24) c.close()
      else c.enqueue(new Uint8Array(chunk))
    },
  })
  assert.equal((await v.writeFile('/large', body)).size, 24 << 20)
  let size = 0
  for await (const part of await v.readFile('/large', { format: 'stream' })) {
    assert.ok(chunk.subarray(size % chunk.length).indexOf(part.subarray(0, 16)) === 0 || part.length < 16)
    size += part.length
  }
  assert.equal(size, 24 << 20)
}))

test('an upload that breaks off leaves nothing under its name', () => withVolume(async (v) => {
  await v.writeFile('/kept', 'old')
  for (const path of ['/kept', '/fresh']) {
    const body = new ReadableStream({
      n: 0,
      pull(c) {
        if (this.n++ > 4) c.error(new Error('the source is gone'))
        else c.enqueue(new Uint8Array(1 << 18))
      },
    })
    await assert.rejects(v.writeFile(path, body, { force: true }))
  }
  assert.equal(await v.readFile('/kept'), 'old')
  assert.deepEqual((await v.list('/')).map((e) => e.path), ['/kept'])
}))

test('two sandboxes share a volume, and it outlives them', () => withVolume(async (v) => {
  await v.writeFile('/from-outside', 'outside')
  const boxes = await Promise.all([1, 2].map(() => Sandbox.create({ timeoutMs: 120_000, volumeMounts: { '/mnt/data': v } })))
  try {
    const [one, two] = boxes
    assert.equal((await one.commands.run('cat /mnt/data/from-outside')).stdout, 'outside')
    for (const [from, to] of [[one, two], [two, one]]) {
      await from.commands.run(`echo ${from.sandboxId} > /mnt/data/shared`)
      assert.equal((await to.commands.run('cat /mnt/data/shared')).stdout, `${from.sandboxId}\n`)
    }
    await one.files.write('/mnt/data/by-envd', 'x')
    assert.equal(await v.readFile('/by-envd'), 'x')
    assert.equal((await v.getInfo('/by-envd')).uid, 1000)
    assert.deepEqual((await one.getInfo()).volumeMounts, [{ name: v.name, path: '/mnt/data' }])
    await assert.rejects(Volume.destroy(v.volumeId), (e) => e instanceof VolumeError && /has it/.test(e.message))
  } finally {
    await Promise.all(boxes.map((b) => b.kill()))
  }
  assert.equal(await v.readFile('/from-outside'), 'outside')
}))

test('what a sandbox puts into a volume leads nowhere', () => withVolume(async (v) => {
  const box = await Sandbox.create({ timeoutMs: 120_000, volumeMounts: { '/mnt/data': v.name } })
  try {
    await box.commands.run('cd /mnt/data && ln -s /etc/shadow shadow && ln -s ../../../../etc up && mkfifo pipe && echo in > f && ln -s f near')
    for (const path of ['/shadow', '/up/shadow', '/pipe']) await assert.rejects(v.readFile(path), VolumeError)
    await assert.rejects(v.writeFile('/up/new', 'x', { force: true }), VolumeError)
    assert.equal(await v.readFile('/near'), 'in\n')
    const link = await v.getInfo('/shadow')
    assert.deepEqual([link.type, link.target], ['symlink', '/etc/shadow'])
    await v.remove('/up')
  } finally {
    await box.kill()
  }
}))

test('no token, no content; no volume, no sandbox', () => withVolume(async (v) => {
  await assert.rejects(v.list('/', { token: 'cvt_wrong' }), AuthenticationError)
  const r = await fetch(`${api}/volumecontent/${v.volumeId}/dir?path=/`, { headers: { 'X-API-KEY': process.env.E2B_API_KEY } })
  assert.equal(r.status, 401)
  const other = await Volume.create(`other-${randomBytes(6).toString('hex')}`)
  try {
    await assert.rejects(other.list('/', { token: v.token }), VolumeError)
  } finally {
    await Volume.destroy(other.volumeId)
  }
  await assert.rejects(Sandbox.create({ volumeMounts: { '/mnt/data': 'there-is-none' } }))
  await assert.rejects(Sandbox.create({ volumeMounts: { '/proc': v } }))
  const { status } = await request('POST', '/sandboxes', { templateID: 'base', volumeMounts: [{ name: v.name, path: '/mnt/a' }, { name: v.name, path: '/mnt/a/b' }] })
  assert.equal(status, 400)
}))
