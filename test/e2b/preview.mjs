// A real browser looks at servers inside sandboxes, by their names. It is run
// with e2b_public_traffic set, and CARBOY_CHROMIUM the path of the browser.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'

import { Sandbox, api, domain, request, until } from './lib.mjs'
import { patience } from './patience.mjs'

const port = 3000
const listener = new URL(api).port
const hostOf = (sandbox, p = port) => `${sandbox.getHost(p)}:${listener}`
const urlOf = (sandbox, path = '/', p = port) => `http://${hostOf(sandbox, p)}${path}`

// A page, a page's data, events, and a WebSocket that says what it hears.
const server = `
import base64, hashlib, json, struct, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

seen = threading.Semaphore(0)

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *args): pass
    def answer(self, kind, body):
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.answer('text/plain', str(len(body)).encode())
    def do_GET(self):
        if self.path == '/ws': return self.talk()
        if self.path == '/events': return self.events()
        if self.path == '/seen': seen.release()
        if self.path == '/headers':
            return self.answer('application/json', json.dumps(dict(self.headers)).encode())
        self.answer('text/html', b'<title>inside</title><h1 id=it>it works</h1>')
    def events(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Connection', 'close')
        self.end_headers()
        for i in range(3):
            self.wfile.write(b'data: %d\\n\\n' % i)
            self.wfile.flush()
            seen.acquire()
        time.sleep(600)
    def talk(self):
        accept = hashlib.sha1((self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest()
        self.send_response(101)
        self.send_header('Upgrade', 'websocket')
        self.send_header('Connection', 'Upgrade')
        self.send_header('Sec-WebSocket-Accept', base64.b64encode(accept).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8: return
            size = head[1] & 127
            if size == 126: size, = struct.unpack('>H', self.rfile.read(2))
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            text = b'heard ' + text
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.wfile.flush()

ThreadingHTTPServer(('127.0.0.1', ${port}), Handler).serve_forever()
`

let browser, open, closed

async function serving(network) {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000, network })
  await sandbox.files.write('/home/user/server.py', server)
  await sandbox.commands.run('python3 /home/user/server.py', { background: true })
  await until(async () => (await sandbox.commands.run(`curl -s http://127.0.0.1:${port}/`)).stdout.includes('it works'))
  return sandbox
}

before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CARBOY_CHROMIUM,
    args: [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--no-proxy-server', `--host-resolver-rules=MAP *.${domain} 127.0.0.1`,
    ],
  })
  open = await serving()
  closed = await serving({ allowPublicTraffic: false })
}, { timeout: 120_000 * patience })

after(async () => {
  await browser?.close()
  await Promise.all([open?.kill(), closed?.kill()])
})

// look opens a page in a browser that was never used, for as long as the test
// lasts.
async function look(t, url, headers) {
  const context = await browser.newContext({ extraHTTPHeaders: headers })
  t.after(() => context.close())
  const page = await context.newPage()
  return { page, response: await page.goto(url) }
}

test('a page, its requests, a WebSocket and events', async (t) => {
  assert.ok(!open.trafficAccessToken)
  const at = await look(t, urlOf(open))
  assert.equal(at.response.status(), 200)
  assert.equal(await at.page.textContent('#it'), 'it works')
  const headers = await at.page.evaluate(async () => (await fetch('/headers')).json())
  assert.equal(headers.Host, hostOf(open))
  assert.equal(await at.page.evaluate(async () => (await fetch('/', { method: 'POST', body: new Uint8Array(5_000_000) })).text()), '5000000')
  const heard = await at.page.evaluate(() => new Promise((resolve, reject) => {
    const ws = new WebSocket(`ws://${location.host}/ws`)
    const all = []
    ws.onopen = () => ws.send('one')
    ws.onerror = () => reject(new Error('the WebSocket failed'))
    ws.onmessage = (e) => { all.push(e.data); all.length < 2 ? ws.send('two') : resolve(all) }
  }))
  assert.deepEqual(heard, ['heard one', 'heard two'])
  // Each event comes by itself, while the answer goes on: the next is sent once the page says
  // that it has seen the one before.
  const events = await at.page.evaluate(() => new Promise((resolve, reject) => {
    const source = new EventSource('/events')
    const all = []
    source.onerror = () => reject(new Error('the events failed'))
    source.onmessage = (e) => {
      all.push(e.data)
      fetch('/seen').catch(reject)
      if (all.length === 3) { source.close(); resolve(all) }
    }
  }))
  assert.deepEqual(events, ['0', '1', '2'])
})

test('restricted: refused without the token, let in with it', async (t) => {
  const token = closed.trafficAccessToken
  assert.ok(token)
  {
    const at = await look(t, urlOf(closed))
    assert.equal(at.response.status(), 403)
    assert.match(await at.page.textContent('body'), /restricted/)
    const r = await request('GET', '/headers', undefined, { 'E2b-Sandbox-Id': closed.sandboxId, 'E2b-Sandbox-Port': String(port) })
    assert.equal(r.status, 403)
    assert.equal(r.json.sandboxId, closed.sandboxId)
  }
  {
    const at = await look(t, urlOf(closed), { 'E2b-Traffic-Access-Token': '0'.repeat(64) })
    assert.equal(at.response.status(), 403)
  }
  {
    const at = await look(t, urlOf(closed), { 'E2b-Traffic-Access-Token': token })
    assert.equal(at.response.status(), 200)
    const text = await at.page.evaluate(async () => (await fetch('/headers')).text())
    assert.ok(!text.includes(token), 'the server inside was told the token')
  }
})

test('a port that is closed, and a sandbox that is not', async (t) => {
  for (const url of [urlOf(open, '/', 3999), `http://3000-sb_${'a'.repeat(20)}.${domain}:${listener}/`]) {
    const at = await look(t, url)
    assert.equal(at.response.status(), 502)
    assert.match(at.response.headers()['content-type'], /^text\/html/)
    const r = await request('GET', '/x', undefined, { 'E2b-Sandbox-Id': new URL(url).host.slice(5, 28), 'E2b-Sandbox-Port': '3999' })
    assert.equal(r.status, 502)
    assert.equal(r.json.code, 502)
  }
})

// What the page of one sandbox gets of an address, with what it may know.
const reach = (page, url, headers = {}) => page.evaluate(async ([url, headers]) => {
  try {
    const r = await fetch(url, { headers, credentials: 'include' }).catch(() => fetch(url, { headers }))
    return `${r.status} ${await r.text()}`
  } catch (e) {
    return `failed: ${e.message}`
  }
}, [url, headers])

test('a page reaches neither another sandbox nor the API', async (t) => {
  await closed.files.write('/home/user/secret', 'the secret')
  const at = await look(t, urlOf(open))
  const file = urlOf(closed, '/files?path=/home/user/secret&username=user', 49983)
  assert.match(await reach(at.page, file), /^401 /)
  assert.match(await reach(at.page, urlOf(closed, '/headers')), /^403 /)
  const key = { 'X-API-KEY': process.env.E2B_API_KEY }
  for (const host of [`api.${domain}`, domain, `sandbox.${domain}`, '127.0.0.1']) {
    for (const path of ['/sandboxes', '/v1/sandboxes']) {
      assert.match(await reach(at.page, `http://${host}:${listener}${path}`, key), /^failed/, host)
    }
  }
  // The same attempts, where they are allowed: with the token that the other
  // page does not know, and by who is no page.
  assert.equal(await reach(at.page, file, { 'X-Access-Token': closed.envdAccessToken }), '200 the secret')
  assert.equal((await request('GET', '/sandboxes')).status, 200)
})

test('the end of a sandbox ends what a page listens to', async (t) => {
  const doomed = await serving()
  try {
    const at = await look(t, urlOf(doomed))
    const ended = at.page.evaluate(() => new Promise((resolve) => {
      const ws = new WebSocket(`ws://${location.host}/ws`)
      ws.onopen = () => { document.title = 'open' }
      ws.onclose = (e) => resolve(e.wasClean)
    }))
    await at.page.waitForFunction(() => document.title === 'open', undefined, { polling: 100 })
    await doomed.kill()
    assert.equal(await ended, false)
  } finally {
    await doomed.kill().catch(() => {})
  }
})
