// MCP servers in a sandbox: the gateway that E2B's client starts there, reached
// by the official client of the protocol, with a server of npm behind it.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, test } from 'node:test'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js'
import { Sandbox, SandboxError, Template, request, until, wall } from './lib.mjs'

const context = await mkdtemp(join(tmpdir(), 'carboy-mcp-'))
const modules = join(import.meta.dirname, 'node_modules')

// copied copies a package and all that it needs.
async function copied(name, from, done = new Set()) {
  let dir = from
  while (!(await readFile(join(dir, 'node_modules', name, 'package.json')).catch(() => undefined))) dir = dirname(dir)
  const source = join(dir, 'node_modules', name)
  if (done.has(source)) return
  done.add(source)
  const target = join(context, 'server', source.slice(dirname(modules).length))
  await cp(source, target, { recursive: true, filter: (f) => f === source || !f.slice(source.length).startsWith('/node_modules') })
  const { dependencies = {} } = JSON.parse(await readFile(join(source, 'package.json')))
  for (const d of Object.keys(dependencies)) await copied(d, source, done)
}

// A server without a library, which ends when it is asked to.
const tiny = `
const answer = (id, result) => console.log(JSON.stringify({ jsonrpc: '2.0', id, result }))
const tool = (name) => ({ name, inputSchema: { type: 'object' } })
const text = (t) => ({ content: [{ type: 'text', text: t }] })
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (method === 'initialize') answer(id, { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'tiny', version: '1' } })
  if (method === 'tools/list') answer(id, { tools: [tool('whoami'), tool('echo'), tool('end')] })
  if (method === 'tools/call' && params.name === 'end') process.exit(1)
  if (method === 'tools/call') answer(id, text([process.env.GREETING, require('os').userInfo().username, process.env.GATEWAY_ACCESS_TOKEN, process.cwd()].join(' ')))
})`

const config = {
  everything: {},
  'github/example/tiny': { installCmd: 'touch installed', runCmd: 'test -f installed && exec node tiny.js', envs: { GREETING: 'hello' } },
}

let name, sandbox, client
const logs = []

before(async () => {
  await mkdir(join(context, 'repo'), { recursive: true })
  await copied('@modelcontextprotocol/server-everything', import.meta.dirname)
  await writeFile(join(context, 'repo/tiny.js'), tiny)
  const git = (...args) => execFileSync('git', ['-C', join(context, 'repo'), '-c', 'user.name=t', '-c', 'user.email=t@example', ...args])
  git('init', '-q')
  git('add', '.')
  git('commit', '-q', '-m', 'tiny')
  await writeFile(join(context, 'gitconfig'), '[url "file:///srv/github/"]\n\tinsteadOf = https://github.com/\n[safe]\n\tdirectory = *\n')
  const template = Template({ fileContextPath: context })
    .fromTemplate('mcp-gateway')
    .copy('server', '/srv/server')
    .copy('repo', '/srv/github/example/tiny')
    .copy('gitconfig', '/home/user/.gitconfig')
  name = `mcp-${wall}`
  await Template.build(template, name)
  sandbox = await start(config)
  client = await connect(sandbox)
  await client.setLoggingLevel('info') // whoever sets none is sent none
})

after(async () => {
  await client?.close()
  await sandbox?.kill()
  await rm(context, { recursive: true, force: true })
})

// start makes a sandbox with a gateway. As root nothing runs behind the wall
// that shares the host's kernel, so E2B's client can't start one there: the
// user does.
async function start(mcp) {
  if (wall !== 'process') return Sandbox.create(name, { mcp, timeoutMs: 300_000 })
  const s = await Sandbox.create(name, { timeoutMs: 300_000 })
  try {
    await s.commands.run(`mcp-gateway --config '${JSON.stringify(mcp)}'`, { envs: { GATEWAY_ACCESS_TOKEN: 'secret' } })
  } catch (e) {
    await s.kill()
    throw new SandboxError(e.stderr)
  }
  return s
}

const tokenOf = (s) => (wall === 'process' ? 'secret' : s.getMcpToken())

async function connect(s, token) {
  const c = new Client({ name: 'test', version: '1' })
  c.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => { logs.push(String(params.data)) })
  const headers = {
    'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '50005', Authorization: `Bearer ${token ?? await tokenOf(s)}`,
    ...(s.trafficAccessToken ? { 'E2B-Traffic-Access-Token': s.trafficAccessToken } : {}),
  }
  await c.connect(new StreamableHTTPClientTransport(new URL('/mcp', process.env.E2B_SANDBOX_URL), { requestInit: { headers } }))
  return c
}

const call = async (tool, args = {}, opts = {}) => (await client.callTool({ name: tool, arguments: args }, undefined, opts)).content[0].text

test('the address and the token, as E2B has them', async () => {
  assert.equal(sandbox.getMcpUrl(), `https://50005-${sandbox.sandboxId}.${process.env.E2B_DOMAIN}/mcp`)
  if (wall === 'process') {
    await assert.rejects(Sandbox.create(name, { mcp: config }), (e) => e instanceof SandboxError && /as root/.test(e.message))
    return
  }
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.getMcpToken(), await sandbox.getMcpToken())
  await assert.rejects(sandbox.commands.run('cat /etc/mcp-gateway/.token'), (e) => /Permission denied/.test(e.stderr))
})

test('without the token nobody is let in', async () => {
  await assert.rejects(connect(sandbox, 'wrong'), /401|token/)
})

test('tools of both servers, prefixed where they clash', async () => {
  const names = (await client.listTools()).tools.map((t) => t.name)
  for (const want of ['echo', 'get-sum', 'whoami', 'tiny_echo']) assert.ok(names.includes(want), `${want} of ${names}`)
  assert.match(await call('echo', { message: 'hi' }), /hi/)
  assert.equal(await call('whoami'), 'hello user  /home/user/.mcp-gateway/github/example/tiny')
})

test('prompts and resources', async () => {
  const { prompts } = await client.listPrompts()
  assert.ok(prompts.length > 0)
  const { resources } = await client.listResources()
  assert.ok(resources.length > 0)
  assert.ok((await client.readResource({ uri: resources[0].uri })).contents.length > 0)
})

test('progress, and cancellation', async () => {
  const seen = []
  await call('trigger-long-running-operation', { duration: 1, steps: 3 }, { onprogress: (p) => seen.push(p.progress) })
  assert.ok(seen.length >= 2, `progress: ${seen}`)
  const stop = new AbortController()
  const long = call('trigger-long-running-operation', { duration: 100, steps: 100 }, { signal: stop.signal, onprogress: () => stop.abort('enough') })
  await assert.rejects(long, /enough/)
  assert.match(await call('echo', { message: 'still' }), /still/)
})

test('a server that ends is started once more, and clients are told', async () => {
  await assert.rejects(call('end'))
  await until(() => logs.some((l) => /tiny: the server ended, and is started again/.test(l)))
  await until(() => call('whoami').catch(() => undefined))
  await assert.rejects(call('end'))
  await until(() => logs.some((l) => /tiny: the server ended again/.test(l)))
  const names = (await client.listTools()).tools.map((t) => t.name)
  assert.ok(!names.includes('whoami') && names.includes('echo'))
})

test('what is not configured is refused, and what can be is named', async () => {
  const refused = (mcp, want) => assert.rejects(start(mcp), (e) => e instanceof SandboxError && want.test(e.message))
  await refused({ exa: { apiKey: 'k' } }, /exa: it is not configured here; there are everything/)
  await refused({ everything: { sudo: true } }, /no such field/)
  await refused({ 'github/example/none': { runCmd: 'true' } }, /clone .*none/s)
  await refused({ 'github/example/tiny': { runCmd: 'echo no such key >&2; exit 1' } }, /no such key/)
  assert.equal((await request('POST', '/sandboxes', { templateID: name, mcp: 'everything' })).status, 400)
})
