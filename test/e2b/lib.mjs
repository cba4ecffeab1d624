// What every test here shares. The unmodified SDK is picked by the name of its
// package: CARBOY_E2B_SDK is e2b, the default, or e2b-next, the minor
// before it. The environment holds E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY,
// E2B_DOMAIN and CARBOY_WALL, the wall that the sandboxes are behind.
import { patience } from './patience.mjs'

const sdk = await import(process.env.CARBOY_E2B_SDK || 'e2b')

export default sdk
export const {
  Sandbox, Template, Volume, FileType, FilesystemEventType, getSignature,
  SandboxError, TimeoutError, InvalidArgumentError, NotEnoughSpaceError, NotFoundError,
  FileNotFoundError, SandboxNotFoundError, AuthenticationError, RateLimitError, CommandExitError,
} = sdk

export const wall = process.env.CARBOY_WALL
export const api = process.env.E2B_API_URL
export const domain = process.env.E2B_DOMAIN

// request calls the API itself, for what no method of the SDK does, and
// returns the status, the headers and the body that came back.
export async function request(method, path, body, headers = {}) {
  const r = await fetch(api + path, {
    method,
    headers: { 'X-API-KEY': process.env.E2B_API_KEY, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await r.text()
  let json
  try {
    json = text === '' ? undefined : JSON.parse(text)
  } catch {
    json = undefined
  }
  return { status: r.status, headers: r.headers, text, json }
}

// until calls f until it returns something true, and returns that. It fails
// after the given time, with what the last call threw if it did.
export async function until(f, timeoutMs = 30_000 * patience, everyMs = 100) {
  const end = Date.now() + timeoutMs
  let last
  for (;;) {
    try {
      const v = await f()
      if (v) return v
      last = undefined
    } catch (e) {
      last = e
    }
    if (Date.now() > end) throw new Error(`nothing true within ${timeoutMs} ms`, { cause: last })
    await new Promise((resolve) => { setTimeout(resolve, everyMs) })
  }
}

// withSandbox makes a sandbox for as long as f runs.
export async function withSandbox(options, f) {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000, ...options })
  try {
    return await f(sandbox)
  } finally {
    await sandbox.kill()
  }
}
