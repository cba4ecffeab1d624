// How sandboxes come, go, rest and are found.
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import {
  Sandbox, NotFoundError, SandboxError, SandboxNotFoundError, AuthenticationError, InvalidArgumentError, CommandExitError,
  request, until, wall, withSandbox,
} from './lib.mjs'
import { patience } from './patience.mjs'

test('pause keeps files, and connect resumes', () => withSandbox({}, async (sandbox) => {
  await sandbox.files.write('kept.txt', 'kept')
  const { pid } = await sandbox.commands.run('sleep 1000', { background: true })
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.pause(), false) // it is paused already
  const info = await sandbox.getInfo()
  assert.equal(info.state, 'paused')
  assert.ok(info.endAt <= new Date(Date.now() + 5_000), 'a paused one ends when it was paused')
  await assert.rejects(sandbox.setTimeout(60_000), SandboxNotFoundError)
  const asked = Date.now()
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 120_000 })
  assert.equal(await again.files.read('kept.txt'), 'kept')
  const kept = (await again.commands.list()).map((p) => p.pid)
  assert.deepEqual(kept, wall === 'process' ? [] : [pid], 'processes are kept where the wall can')
  const { endAt } = await again.getInfo() // 120 s after some moment of the call, to the second
  assert.ok(endAt - asked > 118_000 && endAt - Date.now() <= 120_000, `resumed, it ends ${endAt - asked} ms after that was asked`)
}))

test('the answers to pause and resume say what is kept', () => withSandbox({}, async ({ sandboxId: id }) => {
  const paused = await request('POST', `/sandboxes/${id}/pause`, { memory: true })
  assert.equal(paused.status, 204)
  if (wall === 'process') assert.match(paused.headers.get('carboy-notice'), /processes are not/)
  else assert.equal(paused.headers.get('carboy-notice'), null)
  assert.equal((await request('POST', `/sandboxes/${id}/pause`)).status, 409)
  const resumed = await request('POST', `/sandboxes/${id}/resume`, { timeout: 60 })
  assert.equal(resumed.status, 201)
  assert.equal(resumed.json.sandboxID, id)
  assert.equal((await request('POST', `/sandboxes/${id}/resume`, {})).status, 409)
  const filesAlone = await request('POST', `/sandboxes/${id}/pause`, { memory: false })
  assert.equal(filesAlone.status, 204)
  assert.equal(filesAlone.headers.get('carboy-notice'), null)
  assert.equal((await request('POST', `/sandboxes/${id}/connect`, { timeout: 60 })).status, 201)
  assert.equal((await request('POST', `/sandboxes/${id}/connect`, { timeout: 1 })).status, 200)
}))

test('at its timeout a sandbox is killed, or paused where that was asked for', async () => {
  const killed = await Sandbox.create({ timeoutMs: 1_000 })
  const paused = await Sandbox.create({ timeoutMs: 1_000, lifecycle: { onTimeout: 'pause' } })
  try {
    assert.deepEqual((await paused.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    await until(async () => (await paused.getInfo()).state === 'paused')
    await until(async () => {
      try {
        await killed.getInfo()
        return false
      } catch (e) {
        return e instanceof SandboxNotFoundError
      }
    })
    assert.equal(await killed.kill(), false)
    await paused.connect({ timeoutMs: 300_000 })
    assert.equal((await paused.commands.run('echo on')).stdout, 'on\n')
  } finally {
    await paused.kill()
  }
})

test('connecting never shortens a life, and setTimeout may', () => withSandbox({}, async (sandbox) => {
  const before = (await sandbox.getInfo()).endAt
  await sandbox.connect({ timeoutMs: 1_000 })
  assert.deepEqual((await sandbox.getInfo()).endAt, before)
  await sandbox.setTimeout(60_000)
  assert.ok((await sandbox.getInfo()).endAt < before)
  assert.equal((await request('POST', `/sandboxes/${sandbox.sandboxId}/refreshes`, { duration: 3600 })).status, 204)
  assert.ok((await sandbox.getInfo()).endAt > before)
}))

test('lists: by metadata, state, order, start and page', async () => {
  const run = randomUUID()
  const made = []
  try {
    for (const n of [0, 1, 2]) {
      made.push(await Sandbox.create({ timeoutMs: 300_000, metadata: { run, 'n & m': `${n}=${n}` } }))
    }
    await made[1].pause()
    const ids = async (options) => {
      const found = []
      for (const pages = Sandbox.list(options); pages.hasNext;) found.push(...await pages.nextItems())
      return found.map((s) => made.findIndex((m) => m.sandboxId === s.sandboxId)).join('')
    }
    assert.equal(await ids({ query: { metadata: { run } } }), '210')
    assert.equal(await ids({ query: { metadata: { run } }, order: 'asc' }), '012')
    assert.equal(await ids({ query: { metadata: { run, 'n & m': '2=2' } } }), '2')
    assert.equal(await ids({ query: { metadata: { run }, state: ['paused'] } }), '1')
    assert.equal(await ids({ query: { metadata: { run }, state: ['running', 'paused'] } }), '210')
    assert.equal(await ids({ query: { metadata: { run } }, limit: 1 }), '210')
    assert.equal(await ids({ query: { metadata: { run }, template: 'base' } }), '210')
    assert.equal(await ids({ query: { metadata: { run }, template: 'none' } }), '')
    const { startedAt } = await made[2].getInfo()
    assert.equal(await ids({ query: { metadata: { run }, startedAfter: startedAt } }), '2')
    const [first] = await Sandbox.list({ query: { metadata: { run } } }).nextItems()
    assert.equal(first.metadata.run, run)
    assert.equal(first.templateId, 'base')
    assert.ok(first.cpuCount >= 1 && first.memoryMB >= 128)
    assert.equal((await request('GET', `/sandboxes?metadata=${encodeURIComponent(`run=${run}`)}`)).json.length, 2)
  } finally {
    await Promise.all(made.map((s) => s.kill()))
  }
})

test('what is not there has the error of its kind', async () => {
  await withSandbox({}, async (sandbox) => {
    await sandbox.kill()
    for (const f of [
      () => sandbox.getInfo(), () => sandbox.setTimeout(1_000), () => sandbox.pause(), () => Sandbox.connect(sandbox.sandboxId),
      () => sandbox.updateNetwork({}), () => Sandbox.getInfo('sb_none'),
    ]) {
      await assert.rejects(f(), (e) => e instanceof NotFoundError && e instanceof SandboxNotFoundError)
    }
    assert.equal(await sandbox.kill(), false)
  })
  await assert.rejects(Sandbox.create('no-such-template'), (e) => e instanceof SandboxError && /no such template|not found/i.test(e.message))
  await assert.rejects(Sandbox.list({ apiKey: 'e2b_0000' }).nextItems(), AuthenticationError)
  await assert.rejects(Sandbox.create({ timeoutMs: 10 ** 12 }), (e) => e instanceof SandboxError && /^400: timeout/.test(e.message))
  await assert.rejects(Sandbox.create({ iam: { tokens: { a: { audience: 'x', tokenType: 'JWT-SVID' } } } }), /^SandboxError: 501: iam/)
  await assert.rejects(Sandbox.create({ network: { egressProxy: { address: 'proxy.example:1080' } } }), /501: network.egressProxy/)
  await assert.rejects(Sandbox.create({ lifecycle: { onTimeout: 'kill', autoResume: true } }), InvalidArgumentError)
})

test('an insecure one is secure all the same, and works', () => withSandbox({ secure: false }, async (sandbox) => {
  assert.equal((await sandbox.commands.run('echo ok')).stdout, 'ok\n')
}))

const fetches = async (sandbox, url) => (await sandbox.commands.run(`curl -sfm 60 ${url} || echo refused`)).stdout

test('the network of a running sandbox is replaced', () => withSandbox({
  network: { allowOut: ['one.example'], denyOut: ['0.0.0.0/0'] },
}, async (sandbox) => {
  assert.equal(await fetches(sandbox, 'https://one.example/'), 'hello from one.example\n')
  assert.equal(await fetches(sandbox, 'https://two.example/'), 'refused\n')
  let begun
  const open = new Promise((resolve) => { begun = resolve })
  const endless = await sandbox.commands.run('curl -sfNm 60 https://one.example/endless', { background: true, onStdout: begun })
  await open
  const ended = endless.wait().then(() => null, (e) => e)
  await sandbox.updateNetwork({
    allowOut: ({ rules }) => [...rules.keys()], denyOut: ({ allTraffic }) => [allTraffic],
    rules: { 'two.example': [{ transform: { headers: { 'X-Key': 'hunter2-hunter2' } } }] },
  })
  const end = await ended // what was open and no longer may be
  assert.ok(end instanceof CommandExitError && end.exitCode !== 28, `${end}`) // 28: curl's own limit
  assert.equal(await fetches(sandbox, 'https://one.example/'), 'refused\n')
  assert.equal(await fetches(sandbox, 'https://two.example/'), 'hello from two.example, with a key\n')
  const { network } = await sandbox.getInfo()
  assert.deepEqual(network.allowOut, ['two.example'])
  assert.deepEqual(network.denyOut, ['0.0.0.0/0'])
  assert.deepEqual(network.rules, { 'two.example': [{ transform: { headers: { 'X-Key': '[secret]' } } }] })
  await assert.rejects(sandbox.updateNetwork({ denyOut: ['a.example'] }), /400: network: denyOut/)
  assert.equal(await fetches(sandbox, 'https://two.example/'), 'hello from two.example, with a key\n')
  await sandbox.pause() // and what it may reach is what it was when it comes back
  await sandbox.connect()
  assert.equal(await fetches(sandbox, 'https://two.example/'), 'hello from two.example, with a key\n')
  assert.equal(await fetches(sandbox, 'https://one.example/'), 'refused\n')
}))

test('one without a network can be given none', () => withSandbox({ allowInternetAccess: false }, async (sandbox) => {
  await assert.rejects(sandbox.updateNetwork({ allowOut: ['one.example'], denyOut: ['0.0.0.0/0'] }), /409: .*without a network/)
}))

test('logs: levels, search, direction and cursor', () => withSandbox({}, async ({ sandboxId: id }) => {
  const all = (await request('GET', `/v2/sandboxes/${id}/logs`)).json.logs
  assert.ok(all.length >= 2)
  assert.ok(all.every((l) => l.timestamp && l.level && l.message && l.fields.type))
  const types = async (query) => (await request('GET', `/v2/sandboxes/${id}/logs?${query}`)).json.logs.map((l) => l.fields.type)
  assert.equal((await types('direction=backward&limit=1'))[0], all.at(-1).fields.type)
  assert.deepEqual(await types('search=created'), ['created'])
  assert.deepEqual(await types('level=error'), [])
  assert.equal((await types(`cursor=${Date.parse(all.at(-1).timestamp)}`)).at(-1), all.at(-1).fields.type)
  const v1 = (await request('GET', `/sandboxes/${id}/logs`)).json
  assert.equal(v1.logs.length, v1.logEntries.length)
  assert.equal((await request('GET', `/v2/sandboxes/${id}/logs?level=loud`)).status, 400)
}))

test('metrics: of one over time, and the newest of several', () => withSandbox({}, async (sandbox) => {
  const began = Date.now()
  const busy = await sandbox.commands.run('dd if=/dev/urandom of=big bs=1M count=64 2>/dev/null; sync; while :; do :; done', { background: true })
  const last = await until(async () => {
    const m = (await sandbox.getMetrics()).at(-1)
    return m && m.cpuUsedPct > 1 && m.diskUsed > 64 << 20 && m
  }, 180_000 * patience) // one that took too long to measure is left alone for half a minute
  assert.ok(last.cpuUsedPct <= 100 && last.cpuCount >= 1)
  assert.ok(last.memUsed > 0 && last.memTotal >= 128 << 20 && last.memCache >= 0)
  assert.ok(last.diskTotal > last.diskUsed)
  assert.ok(last.timestamp > began - 2_000 && last.timestamp < Date.now() + 2_000)
  assert.equal((await sandbox.getMetrics({ start: new Date(Date.now() + 3_600_000) })).length, 0)
  assert.equal((await sandbox.getMetrics({ end: new Date(0) })).length, 0)
  const many = await request('GET', `/sandboxes/metrics?sandbox_ids=${sandbox.sandboxId}`)
  assert.ok(many.json.sandboxes[sandbox.sandboxId].timestampUnix > 0)
  await busy.kill()
  await sandbox.pause()
  assert.ok((await sandbox.getMetrics()).length > 0, 'a paused one keeps them')
}))
