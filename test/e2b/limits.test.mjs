// A team with a key that was made while the daemon ran, and with limits.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthenticationError, RateLimitError, Sandbox, request, withSandbox } from './lib.mjs'

const apiKey = process.env.CARBOY_LIMITED_KEY
const asTeam = { 'X-API-KEY': apiKey }

test('a team has no more sandboxes than it may, however many ask at once', async () => {
  const made = await Promise.allSettled([1, 2, 3, 4].map(() => Sandbox.create({ apiKey, timeoutMs: 300_000, retries: 0 })))
  const got = made.filter((m) => m.status === 'fulfilled').map((m) => m.value)
  try {
    assert.equal(got.length, 1)
    for (const m of made) if (m.status === 'rejected') assert.ok(m.reason instanceof RateLimitError, `${m.reason}`)
    const { status, headers } = await request('POST', '/sandboxes', { templateID: 'base' }, asTeam)
    assert.equal(status, 429)
    assert.ok(Number(headers.get('retry-after')) > 0)
    await withSandbox({}, async () => {}) // another team is not concerned
    assert.equal((await got[0].commands.run('echo hello')).stdout, 'hello\n')
  } finally {
    await Promise.all(got.map((sandbox) => sandbox.kill()))
  }
  await withSandbox({ apiKey }, async () => {})
  await assert.rejects(Sandbox.create({ apiKey, timeoutMs: 2 * 3_600_000 }), /400: timeout/)
})

test('its keys make keys, and those that are deleted open nothing', async () => {
  const { status, json: made } = await request('POST', '/api-keys', { name: 'ci' }, asTeam)
  assert.equal(status, 201)
  assert.deepEqual((await Sandbox.list({ apiKey: made.key }).nextItems()), [])
  const { text, json: keys } = await request('GET', '/api-keys', undefined, asTeam)
  assert.deepEqual(keys.map((k) => k.name).sort(), ['ci', 'test'])
  assert.ok(!text.includes(made.key.slice(4)))
  const { maskedValuePrefix, maskedValueSuffix } = keys.find((k) => k.id === made.id).mask
  assert.ok(made.key.startsWith(`e2b_${maskedValuePrefix}`) && made.key.endsWith(maskedValueSuffix))
  assert.equal((await request('DELETE', `/api-keys/${made.id}`, undefined, asTeam)).status, 204)
  await assert.rejects(Sandbox.list({ apiKey: made.key }).nextItems(), AuthenticationError)
})
