// The SDK in its domain mode: E2B_DOMAIN alone says where the API and the
// sandboxes are, over TLS, by a wildcard name whose authority is our own:
// NODE_EXTRA_CA_CERTS names it. Of the machine's only the name server is
// played.
import assert from 'node:assert/strict'
import dns from 'node:dns'
import https from 'node:https'
import { after, before, test } from 'node:test'
import tls from 'node:tls'

import { NotFoundError, Sandbox, SandboxError, domain, until, wall } from './lib.mjs'

const lookup = dns.lookup
dns.lookup = (name, options, done) => (name.endsWith(`.${domain}`) ? lookup('127.0.0.1', options, done) : lookup(name, options, done))

let sandbox
before(async () => {
  assert.deepEqual([process.env.E2B_API_URL, process.env.E2B_SANDBOX_URL], [undefined, undefined])
  sandbox = await Sandbox.create({ timeoutMs: 120_000 })
})
after(() => sandbox.kill())

const told = async (response) => ({ status: response.status, body: await response.json() })

test('commands, terminals and watchers', async () => {
  const { stdout } = await sandbox.commands.run('python -c "print(6 * 7)"')
  assert.equal(stdout, '42\n')
  let text = ''
  const pty = await sandbox.pty.create({ cols: 70, rows: 20, onData: (d) => { text += new TextDecoder().decode(d) } })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size\n'))
  await until(() => text.includes('20 70'))
  await sandbox.pty.kill(pty.pid)
  await assert.rejects(pty.wait())
  let event
  const watch = await sandbox.files.watchDir('.', (e) => { event ||= e })
  await sandbox.files.write('seen', 'x')
  await until(() => event?.name === 'seen')
  await watch.stop()
  assert.ok((await Sandbox.list().nextItems()).some((s) => s.sandboxId === sandbox.sandboxId))
})

test('writes below /', async () => {
  const write = () => sandbox.files.write('/data/in/x', 'text')
  if (wall === 'process') {
    await assert.rejects(write(), SandboxError)
    return
  }
  await write()
  assert.equal(await sandbox.files.read('/data/in/x'), 'text')
  assert.equal((await sandbox.commands.run('stat -c %U:%a /data /data/in /data/in/x; echo more >>/data/in/x')).stdout, 'user:755\nuser:755\nuser:644\n')
})

test('signed URLs', async () => {
  await sandbox.files.write('signed', 'by me')
  const url = await sandbox.downloadUrl('signed', { useSignatureExpiration: 60 })
  assert.match(url, new RegExp(`^https://49983-${sandbox.sandboxId}\\.${domain}/files\\?`))
  assert.equal(await (await fetch(url)).text(), 'by me')
  const form = new FormData()
  form.append('file', new Blob(['by a link']), 'ignored')
  assert.equal((await fetch(await sandbox.uploadUrl('uploaded'), { method: 'POST', body: form })).status, 200)
  assert.equal(await sandbox.files.read('uploaded'), 'by a link')

  const expired = await sandbox.downloadUrl('signed', { useSignatureExpiration: -5 })
  assert.deepEqual(await told(await fetch(expired)), { status: 401, body: { code: 401, message: 'signature is already expired' } })
  // What the link does not name, nothing beside it does.
  const asRoot = { headers: { Authorization: `Basic ${btoa('root:')}` } }
  const forbidden = await sandbox.downloadUrl('/root/of-root')
  if (wall !== 'process') await sandbox.commands.run('echo secret >/root/of-root', { user: 'root' })
  for (const how of [{}, asRoot]) assert.notEqual((await fetch(forbidden, how)).status, 200)
  assert.equal((await fetch(await sandbox.uploadUrl('mine'), { ...asRoot, method: 'POST', body: form })).status, 200)
  assert.equal((await sandbox.files.getInfo('mine')).owner, 'user')

  const other = url.replace('path=signed', 'path=uploaded')
  for (const headers of [{}, { Accept: 'text/html', 'Sec-Fetch-Mode': 'navigate' }]) {
    assert.deepEqual(await told(await fetch(other, { headers })), { status: 401, body: { code: 401, message: 'invalid signature' } })
  }
})

test('previews', async () => {
  await sandbox.files.write('site/index.html', 'it works')
  await sandbox.commands.run('python -m http.server -d site -b 127.0.0.1 3000', { background: true })
  const url = `https://${sandbox.getHost(3000)}/`
  const headers = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
  const page = await until(async () => { const r = await fetch(url, { headers }); return r.status === 200 && r })
  assert.equal(await page.text(), 'it works')
  assert.equal((await fetch(url)).status, 403)
  const closed = await told(await fetch(`https://${sandbox.getHost(3001)}/`, { headers }))
  assert.deepEqual([closed.status, closed.body.code, closed.body.port, closed.body.sandboxId], [502, 502, 3001, sandbox.sandboxId])
})

test('a sandbox that is gone', async () => {
  const gone = await Sandbox.create()
  const read = await gone.downloadUrl('x')
  await gone.kill()
  for (const url of [`https://${gone.getHost(3000)}/`, read]) {
    assert.deepEqual(await told(await fetch(url)), { status: 502, body: { sandboxId: gone.sandboxId, message: 'The sandbox was not found', code: 502 } })
  }
  await assert.rejects(Sandbox.connect(gone.sandboxId), NotFoundError)
  assert.equal(await gone.isRunning(), false)
})

test('without that authority nothing is reached', async () => {
  const tried = new Promise((resolve, reject) => {
    https.get({ host: `api.${domain}`, path: '/health', ca: tls.rootCertificates }, resolve).on('error', reject)
  })
  await assert.rejects(tried, { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' })
})
