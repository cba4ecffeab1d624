// OpenAI's Agents SDK with its sandbox client for E2B, unmodified. The model is
// played.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { run } from '@openai/agents'
import { Manifest, SandboxAgent, shell, filesystem } from '@openai/agents/sandbox'
import { assistantMessage, functionCall, ScriptedModel } from '@openai/agents/testing'
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'
import { Sandbox, domain, until } from './lib.mjs'

const files = { 'hello.txt': { type: 'file', content: 'hi' }, src: { type: 'dir', children: { 'a.py': { type: 'file', content: 'print(6 * 7)' } } } }

async function withSession(options, f) {
  const client = new E2BSandboxClient({ template: 'base', timeout: 120, ...options })
  const session = await client.create(new Manifest({ root: '/workspace', entries: files }))
  try {
    await f(session, client)
  } finally {
    await session.close()
  }
}

test('a session: commands, terminals, files, ports', () => withSession({ env: { ONE: '1' }, exposedPorts: [3000] }, async (session) => {
  const shown = await session.execCommand({ cmd: 'pwd; cat hello.txt; echo; python src/a.py; echo $ONE; exit 3' })
  assert.match(shown, /code 3\b[^]*\n\/workspace\nhi\n42\n1\n/)
  const asked = await session.execCommand({ cmd: 'stty size; read x; echo "got $x"', tty: true, yieldTimeMs: 500 })
  let said = await session.writeStdin({ sessionId: Number(/session ID (\d+)/.exec(asked)[1]), chars: 'this\nexit\n' })
  await until(async () => {
    const id = /session ID (\d+)/.exec(said)
    if (id) said += await session.writeStdin({ sessionId: Number(id[1]), chars: '' })
    return /got this/.test(asked + said)
  })
  assert.match(asked + said, /24 80/)
  assert.equal(new TextDecoder().decode(await session.readFile({ path: 'hello.txt' })), 'hi')
  assert.deepEqual([await session.pathExists('src/none'), await session.pathExists('src/a.py')], [false, true])
  const { host, tls } = await session.resolveExposedPort(3000)
  assert.deepEqual([host.endsWith(`.${domain}`), tls], [true, true])
}))

for (const workspacePersistence of ['tar', 'snapshot']) {
  test(`a session is resumed, and its workspace kept as ${workspacePersistence}`, () => withSession({ workspacePersistence }, async (session, client) => {
    const state = JSON.parse(JSON.stringify(await client.serializeSessionState(session.state)))
    const again = await client.resume(await client.deserializeSessionState(state))
    assert.match(await again.execCommand({ cmd: 'echo more >>hello.txt; cat hello.txt' }), /himore\n/)
    const kept = await session.persistWorkspace()
    await session.execCommand({ cmd: 'rm -r hello.txt src' })
    await session.hydrateWorkspace(kept)
    assert.match(await session.execCommand({ cmd: 'cat hello.txt src/a.py' }), /himore\nprint\(6/)
  }))
}

test('an agent runs a command and answers', async () => {
  const model = new ScriptedModel([
    [functionCall('exec_command', { cmd: 'python src/a.py' }, { callId: 'one' })],
    [assistantMessage('42')],
  ])
  const agent = new SandboxAgent({ name: 'worker', model, instructions: 'Answer.', capabilities: [shell(), filesystem()], defaultManifest: new Manifest({ root: '/workspace', entries: files }) })
  const before = (await Sandbox.list().nextItems()).length
  const result = await run(agent, 'What does src/a.py print?', { sandbox: { client: new E2BSandboxClient({ template: 'base', timeout: 120 }) } })
  assert.equal(result.finalOutput, '42')
  assert.match(JSON.stringify(model.lastCall.request.input), /code 0[^]*42/)
  assert.equal((await Sandbox.list().nextItems()).length, before)
})
