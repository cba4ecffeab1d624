// Secrets by their names: kept, put into requests by the gate, and never told.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import sdk, { request, withSandbox } from './lib.mjs'

const { Secret } = sdk
const hash = (s) => createHash('sha256').update(s).digest('hex')

// withSecret keeps a secret for as long as f runs.
async function withSecret(value, f) {
  const name = `Test-Key-${process.pid}-${Math.random().toString(36).slice(2)}`
  const secret = await Secret.create(name, value, { metadata: { for: 'a test' } })
  try {
    return await f(secret)
  } finally {
    await Secret.destroy(secret.secretId)
  }
}

async function all() {
  const found = []
  for (const pages = Secret.list({ limit: 1 }); pages.hasNext;) found.push(...await pages.nextItems())
  return found
}

test('a secret is made, looked at, updated, listed and destroyed', () => withSecret('hunter2-hunter2', async (secret) => {
  assert.match(secret.secretId, /^sec_/)
  assert.equal(secret.name, secret.name.toLowerCase())
  assert.equal(secret.version, 1)
  assert.deepEqual(secret.metadata, { for: 'a test' })
  assert.deepEqual(await Secret.getInfo(secret.name.toUpperCase()), secret)
  await withSecret('swordfish-swordfish', async (other) => {
    const names = (await all()).map((s) => s.name)
    assert.ok(names.includes(secret.name) && names.includes(other.name), `${names}`)
  })
  const updated = await Secret.update(secret.name, 'swordfish-swordfish')
  assert.equal(updated.version, 2)
  assert.deepEqual(updated.metadata, { for: 'a test' })
  await assert.rejects(Secret.create(secret.name, 'hunter2-hunter2'), /409/)
  assert.equal(await Secret.exists(secret.name), true)
  assert.equal(await Secret.destroy(secret.name), true)
  assert.equal(await Secret.destroy(secret.name), false)
  assert.equal(await Secret.exists(secret.name), false)
  await assert.rejects(Secret.update(secret.name, 'hunter2-hunter2'), sdk.SecretNotFoundError)
}))

test('no answer has the value', () => withSecret('hunter2-hunter2', async (secret) => {
  for (const path of ['/secrets', `/secrets/${secret.secretId}`, `/secrets/${secret.name}`, '/v1/secrets']) {
    const { status, text } = await request('GET', path)
    assert.equal(status, 200)
    assert.ok(!text.includes('hunter2'), text)
  }
}))

test('the gate puts it into requests, and the sandbox has it not', () => withSecret('hunter2-hunter2', (secret) => withSandbox({
  network: {
    allowOut: ['one.example', 'two.example'], denyOut: ['0.0.0.0/0'],
    rules: { 'one.example': [{ transform: { headers: { 'X-Key': Secret.fill(secret.name) } } }] },
  },
}, async (sandbox) => {
  const which = async (host) => (await sandbox.commands.run(`curl -sS https://${host}/which || echo refused`)).stdout.trim()
  assert.equal(await which('one.example'), hash('hunter2-hunter2'))
  assert.equal(await which('two.example'), hash('')) // it is for one host alone
  const { stdout } = await sandbox.commands.run('env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"; true')
  assert.ok(!stdout.includes('hunter2'))
  const { text } = await request('GET', `/sandboxes/${sandbox.sandboxId}`)
  assert.ok(!text.includes('hunter2'), text)
  // A new version is what running sandboxes have from then on; a secret that is
  // gone is put into nothing.
  await Secret.update(secret.name, 'swordfish-swordfish')
  assert.equal(await which('one.example'), hash('swordfish-swordfish'))
  await Secret.destroy(secret.name)
  assert.notEqual(await which('one.example'), hash('swordfish-swordfish'))
})))

test('a place that nothing would fill is refused', async () => {
  const create = (more) => withSandbox(more, async () => {})
  const rules = (value) => ({ network: {
    allowOut: ['one.example'], denyOut: ['0.0.0.0/0'],
    rules: { 'one.example': [{ transform: { headers: { 'X-Key': value } } }] },
  } })
  await assert.rejects(create(rules(Secret.fill('no-such-secret'))), /400: .*no secret/)
  await assert.rejects(create(rules(`a ${Secret.fill('no-such-secret')}`)), /501: .*whole value/)
  await assert.rejects(create({ envs: { KEY: Secret.fill('no-such-secret') } }), /501: .*requests alone/)
})

test('teams, keys and the machine are for those whose key says so', async () => {
  const { json: [team] } = await request('GET', '/teams')
  assert.match(team.teamID, /^[0-9a-f]{8}-/)
  assert.equal(team.apiKey, process.env.E2B_API_KEY)
  const { json: points } = await request('GET', `/teams/${team.teamID}/metrics`)
  assert.ok(points.every((p) => p.concurrentSandboxes >= 0 && p.sandboxStartRate >= 0))
  for (const [method, path, status] of [
    ['GET', '/api-keys', 403], ['GET', '/nodes', 401], ['GET', '/admin/sandboxes/running-counts', 401],
  ]) assert.equal((await request(method, path)).status, status, path)
  assert.equal((await request('POST', '/access-tokens', { name: 'x' })).status, 410)
})
