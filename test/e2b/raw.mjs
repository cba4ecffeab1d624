// The wire beneath E2B's clients: calls of envd that they do not make, or
// would not let through.
import { patience } from './patience.mjs'

export const token = (sandbox) => sandbox.envdAccessToken

// at is where a path of a sandbox's envd is, and the headers to reach it.
export function at(sandbox, path, headers = {}) {
  return [new URL(path, process.env.E2B_SANDBOX_URL), {
    'E2b-Sandbox-Id': sandbox.sandboxId,
    'E2b-Sandbox-Port': '49983',
    'X-Access-Token': token(sandbox),
    ...headers,
  }]
}

export const as = (user) => ({ Authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` })

// http asks for a path and returns the answer with its text.
export async function http(sandbox, method, path, { headers, body, duplex, signal } = {}) {
  const [url, h] = at(sandbox, path, headers)
  for (const name of Object.keys(h)) if (h[name] === undefined) delete h[name]
  const res = await fetch(url, { method, headers: h, body, duplex, signal })
  return { status: res.status, headers: res.headers, text: await res.text() }
}

// unary calls a method and returns its message, or throws with its code.
export async function unary(sandbox, method, message = {}, headers = {}) {
  const { status, text } = await http(sandbox, 'POST', `/${method}`, {
    headers: { 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', ...headers },
    body: JSON.stringify(message),
  })
  const got = JSON.parse(text)
  if (status !== 200) throw Object.assign(new Error(got.message), { code: got.code, status })
  return got
}

const frame = (message) => {
  const data = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(data.length, 1)
  return Buffer.concat([head, data])
}

// stream calls a method whose answer, and with several messages whose request,
// is a stream, and yields what comes. It throws with the code that ends it.
export async function* stream(sandbox, method, messages, { headers = {}, signal } = {}) {
  const [url, h] = at(sandbox, `/${method}`, { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', ...headers })
  const body = Buffer.concat([messages].flat().map(frame))
  const res = await fetch(url, { method: 'POST', headers: h, body, signal })
  let rest = Buffer.alloc(0)
  for await (const chunk of res.body) {
    rest = Buffer.concat([rest, chunk])
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1)
      const message = JSON.parse(rest.subarray(5, end).toString())
      const last = rest[0] & 2
      rest = rest.subarray(end)
      if (!last) {
        yield message
      } else if (message.error) {
        throw Object.assign(new Error(message.error.message), { code: message.error.code })
      }
    }
  }
}

// start runs a command to its end and returns what it said.
export async function start(sandbox, request, headers) {
  const got = { stdout: '', stderr: '', pty: '', keepalives: 0 }
  for await (const { event } of stream(sandbox, 'process.Process/Start', request, { headers })) {
    if (event.start) got.pid = event.start.pid
    if (event.keepalive) got.keepalives++
    if (event.end) got.end = event.end
    for (const name of ['stdout', 'stderr', 'pty']) {
      if (event.data?.[name]) got[name] += Buffer.from(event.data[name], 'base64')
    }
  }
  return got
}

// until waits for a condition that something else brings about.
export async function until(what, condition, ms = 15_000 * patience) {
  const end = Date.now() + ms
  for (;;) {
    const got = await condition()
    if (got) return got
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await new Promise((resolve) => { setTimeout(resolve, 20) })
  }
}

// within fails when a promise takes too long: a test that hangs says nothing.
export function within(promise, what, ms = 15_000 * patience) {
  let timer
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${what}`)), ms) })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// clients are the versions of the SDK that must work, by the name under which
// package.json has them.
export const clients = ['e2b', 'e2b-next', 'e2b-2.2', 'e2b-1']
