// deepagents, unmodified, over the backend that docs/deepagents.md shows. The
// model is played.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { AIMessage } from '@langchain/core/messages'
import { fakeModel } from '@langchain/core/testing'
import { createDeepAgent } from 'deepagents'

// shown is the program that the document shows by that name.
async function shown(name) {
  const page = await readFile(new URL('../../docs/deepagents.md', import.meta.url), 'utf8')
  const [, lines] = page.split(`$ cat >${name} <<'END'\n`)
  const text = lines.slice(0, lines.indexOf('> END\n')).replace(/^> ?/gm, '')
  const file = new URL(`node_modules/.shown-${process.pid}.mjs`, import.meta.url)
  await writeFile(file, text)
  try {
    return await import(file)
  } finally {
    await rm(file)
  }
}

const { CarboySandbox } = await shown('carboy.mjs')

async function withBackend(f) {
  const backend = await CarboySandbox.create({ timeoutMs: 120_000 })
  try {
    await f(backend)
  } finally {
    await backend.sandbox.kill()
  }
}

test('the backend does what deepagents asks of one', () => withBackend(async (backend) => {
  assert.deepEqual(await backend.execute('echo out; exit 3'), { output: 'out\n', exitCode: 3, truncated: false })
  assert.equal((await backend.write('/home/user/work/a.txt', 'one\ntwo\n')).error, undefined)
  assert.match(String((await backend.read('/home/user/work/a.txt')).content), /two/)
  assert.equal((await backend.edit('/home/user/work/a.txt', 'two', 'three')).error, undefined)
  assert.deepEqual((await backend.grep('three', '/home/user/work')).matches.map((m) => [m.path, m.line, m.text]), [['/home/user/work/a.txt', 2, 'three']])
  assert.deepEqual((await backend.glob('**/*.txt', '/home/user/work')).files.map((f) => f.path), ['a.txt'])
  assert.deepEqual((await backend.ls('/home/user/work')).files.map((f) => f.path), ['/home/user/work/a.txt'])
  assert.ok((await backend.read('/home/user/none')).error)
  const [gone, dir, closed] = await backend.downloadFiles(['/home/user/none', '/home/user', '/root/x'])
  assert.deepEqual([gone.error, dir.error, closed.error], ['file_not_found', 'is_directory', 'permission_denied'])
  assert.equal((await backend.uploadFiles([['/home/user', new Uint8Array([1])]]))[0].error, 'is_directory')
  assert.equal((await backend.delete('/home/user/work')).error, undefined)
  assert.equal((await backend.execute('ls /home/user/work')).exitCode, 2)
}))

test('an agent writes a program, runs it, and answers', () => withBackend(async (backend) => {
  const call = (name, args) => ({ name, args, id: name, type: 'tool_call' })
  const model = fakeModel()
    .respondWithTools([call('write_file', { file_path: '/home/user/answer.py', content: 'print(6 * 7)' })])
    .respondWithTools([call('execute', { command: 'python /home/user/answer.py' })])
    .respond(new AIMessage('done'))
  const { messages } = await createDeepAgent({ model, backend }).invoke({ messages: [{ role: 'user', content: 'What is the answer?' }] })
  assert.match(String(messages.findLast((m) => m.type === 'tool').content), /^42\n/)
  assert.equal(messages.at(-1).content, 'done')
  assert.equal((await backend.execute('cat answer.py')).output, 'print(6 * 7)')
}))
