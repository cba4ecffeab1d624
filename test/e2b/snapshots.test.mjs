// Snapshots, and what is made from them.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, SandboxError, SandboxNotFoundError, request, withSandbox } from './lib.mjs'

const pages = async (pages) => {
  const found = []
  while (pages.hasNext) found.push(...await pages.nextItems())
  return found
}

test('a snapshot: made, listed, started from twice, deleted', () => withSandbox({}, async (sandbox) => {
  await sandbox.files.write('kept.txt', 'one')
  const snapshot = await sandbox.createSnapshot()
  assert.deepEqual(snapshot.names, [])
  await sandbox.files.write('kept.txt', 'two') // goes on, and changes nothing of it
  const second = await sandbox.createSnapshot()
  assert.deepEqual((await pages(sandbox.listSnapshots())).map((s) => s.snapshotId), [second.snapshotId, snapshot.snapshotId])
  assert.equal((await pages(sandbox.listSnapshots({ limit: 1 }))).length, 2)
  assert.deepEqual((await pages(Sandbox.listSnapshots({ name: second.snapshotId }))).map((s) => s.snapshotId), [second.snapshotId])
  const made = await Promise.all([1, 2].map(() => Sandbox.create(snapshot.snapshotId, { timeoutMs: 300_000 })))
  try {
    for (const [i, s] of made.entries()) {
      assert.equal(await s.files.read('kept.txt'), 'one')
      await s.files.write('own.txt', `${i}`)
    }
    assert.equal(await made[0].files.read('own.txt'), '0')
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
    assert.equal(await made[1].files.read('kept.txt'), 'one') // which has it still
    await assert.rejects(Sandbox.create(snapshot.snapshotId), (e) => e instanceof SandboxError && /^404/.test(e.message))
  } finally {
    await Promise.all(made.map((s) => s.kill()))
    await Sandbox.deleteSnapshot(second.snapshotId)
  }
}))

test('a snapshot with a name is a template', () => withSandbox({}, async (sandbox) => {
  await sandbox.files.write('kept.txt', 'named')
  const snapshot = await sandbox.createSnapshot({ name: 'my-snapshot:v1' })
  try {
    assert.equal(snapshot.names.length, 1)
    assert.ok(snapshot.names[0].includes('my-snapshot'))
    const listed = await pages(Sandbox.listSnapshots({ name: 'my-snapshot' }))
    assert.deepEqual(listed.map((s) => s.snapshotId), [snapshot.snapshotId])
    await withSandbox({ template: 'my-snapshot:v1' }, async (s) => assert.equal(await s.files.read('kept.txt'), 'named'))
  } finally {
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  }
}))

test('forks have the files, the metadata and the variables of their origin', () => withSandbox({
  metadata: { of: 'fork' }, envs: { ONE: '1' },
  network: { allowOut: ['two.example'], denyOut: ['0.0.0.0/0'], rules: { 'two.example': [{ transform: { headers: { 'X-Key': 'hunter2-hunter2' } } }] } },
}, async (sandbox) => {
  await sandbox.files.write('kept.txt', 'origin')
  const forks = await sandbox.fork({ count: 2, timeoutMs: 300_000 })
  try {
    assert.equal(forks.length, 2)
    for (const f of forks) {
      assert.ok(f instanceof Sandbox, `${f}`)
      assert.notEqual(f.sandboxId, sandbox.sandboxId)
      assert.equal(await f.files.read('kept.txt'), 'origin')
      assert.equal((await f.commands.run('echo $ONE')).stdout, '1\n')
      assert.equal((await f.commands.run('curl -sfm 60 https://two.example/')).stdout, 'hello from two.example, with a key\n')
      assert.equal((await f.getInfo()).metadata.of, 'fork')
    }
    await forks[0].files.write('kept.txt', 'its own')
    assert.equal(await sandbox.files.read('kept.txt'), 'origin')
    assert.equal(await forks[1].files.read('kept.txt'), 'origin')
  } finally {
    await Promise.all(forks.filter((f) => f instanceof Sandbox).map((f) => f.kill()))
  }
  assert.deepEqual(await pages(sandbox.listSnapshots()), []) // a fork leaves none
}))

test('what can be neither saved nor forked', async () => {
  await withSandbox({}, async (sandbox) => {
    await sandbox.pause()
    await assert.rejects(sandbox.fork(), /409/)
    const paused = await sandbox.createSnapshot() // its files are there
    await Sandbox.deleteSnapshot(paused.snapshotId)
    assert.equal((await request('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count: 101 })).status, 400)
    await sandbox.kill()
    await assert.rejects(sandbox.createSnapshot(), SandboxNotFoundError)
    await assert.rejects(sandbox.fork(), SandboxNotFoundError)
  })
})
