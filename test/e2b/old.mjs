// The E2B clients of before 2.20 know no E2B_API_URL and E2B_SANDBOX_URL: they
// go to https://api.DOMAIN and https://PORT-ID.DOMAIN. A browser's or a
// company's name server and TLS front would lead these to the daemon; here
// fetch does. Nothing in the clients is changed.
const api = process.env.E2B_API_URL
const sandboxes = process.env.E2B_SANDBOX_URL
const direct = globalThis.fetch

globalThis.fetch = (input, init) => {
  const url = new URL(input instanceof Request ? input.url : input)
  const at = /^(\d+)-([^.]+)\./.exec(url.hostname)
  if (url.protocol !== 'https:' || (!at && !url.hostname.startsWith('api.'))) return direct(input, init)
  const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined))
  if (at) {
    headers.set('E2b-Sandbox-Port', at[1])
    headers.set('E2b-Sandbox-Id', at[2])
  }
  const to = new URL(url.pathname + url.search, at ? sandboxes : api)
  return direct(input instanceof Request ? new Request(to, new Request(input, { ...init, headers })) : to, { ...init, headers })
}
