// The code interpreter, through the unmodified @e2b/code-interpreter.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Sandbox } from '@e2b/code-interpreter'
import { Template, until, wall } from './lib.mjs'
import { patience } from './patience.mjs'

let sandbox
before(async () => {
  sandbox = await Sandbox.create({ timeoutMs: 300_000, envs: { FROM_CREATE: 'yes' } })
})
after(async () => {
  await sandbox?.kill()
})

// After a request that was refused, the SDK keeps its program running until the
// time for it is over.
const soon = { requestTimeoutMs: 5_000 * patience }

const text = async (code, opts) => {
  const e = await sandbox.runCode(code, opts)
  return e.error ? `${e.error.name}: ${e.error.value}` : e.text
}

test('cells keep their state, and are counted', async () => {
  assert.equal((await sandbox.runCode('x = 20')).executionCount, 1)
  const second = await sandbox.runCode('x += 1; x')
  assert.equal(second.text, '21')
  assert.equal(second.executionCount, 2)
  assert.equal(await text('import os; (os.getcwd(), os.getenv("USER"), os.getenv("FROM_CREATE"))'), "('/home/user', 'user', 'yes')")
})

test('output, results and errors come in their order', async () => {
  const seen = []
  const e = await sandbox.runCode(`
import sys, time
print("one", flush=True)
time.sleep(0.2)
print("two ✓", file=sys.stderr, flush=True)
display("shown")
time.sleep(0.2)
print("three", flush=True)
1 / 0`, {
    onStdout: (m) => seen.push(m.line), onStderr: (m) => seen.push(`!${m.line}`),
    onResult: (r) => seen.push(r.text), onError: (err) => seen.push(err.name),
  })
  assert.deepEqual(seen, ['one\n', '!two ✓\n', 'shown', 'three\n', 'ZeroDivisionError'])
  assert.deepEqual(e.logs, { stdout: ['one\n', 'three\n'], stderr: ['two ✓\n'] })
  assert.equal(e.error.value, 'division by zero')
  assert.match(e.error.traceback, /1 \/ 0/)
})

test('a chart of matplotlib: a picture, and what it plots', async () => {
  const e = await sandbox.runCode(`
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(8, 4))
ax.bar(["a", "b"], [1, 2], label="sold")
ax.set(title="Sales", xlabel="what", ylabel="how many (k)")
plt.show()`)
  assert.equal(e.error, undefined)
  const [{ png, chart, isMainResult }] = e.results
  const picture = Buffer.from(png, 'base64')
  assert.deepEqual([...picture.subarray(0, 8)], [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
  assert.ok(picture.readUInt32BE(16) > 400 && picture.readUInt32BE(20) > 200, 'its width and height')
  assert.ok(picture.length > 1000)
  assert.equal(isMainResult, false)
  assert.equal(chart.type, 'bar')
  assert.deepEqual([chart.title, chart.x_label, chart.y_label, chart.x_unit, chart.y_unit], ['Sales', 'what', 'how many (k)', null, 'k'])
  assert.deepEqual(chart.elements.map((b) => [b.label, b.value, b.group]), [['a', 1, 'sold'], ['b', 2, 'sold']])
})

test('tables, and values of other kinds', async () => {
  const table = (await sandbox.runCode('import pandas as pd\npd.DataFrame({"a": [1, None], "b": ["x", "y"]})')).results[0]
  assert.deepEqual(table.data, { a: [1, null], b: ['x', 'y'] })
  assert.match(table.html, /<table/)
  assert.deepEqual((await sandbox.runCode('{"k": [1, 2]}')).results[0].json, { k: [1, 2] })
  const e = await sandbox.runCode('from IPython.display import *\ndisplay(HTML("<b>h</b>"), Markdown("*m*"), SVG("<svg xmlns=\\"http://www.w3.org/2000/svg\\"/>"), Latex("$l$"), Javascript("1"))')
  assert.deepEqual(e.results.flatMap((r) => r.formats()), ['html', 'markdown', 'svg', 'latex', 'javascript'])
})

test('shell, magics, await, and no input', async () => {
  assert.equal((await sandbox.runCode('!echo $((6 * 7))')).logs.stdout.join('').trim(), '42')
  assert.equal(await text('import asyncio\nawait asyncio.sleep(0, "woke")'), 'woke')
  assert.match((await sandbox.runCode('%%bash\necho from bash')).logs.stdout.join(''), /from bash/)
  assert.match(await text('input("?")'), /StdinNotImplementedError/)
})

test('variables of one cell', async () => {
  const get = 'import os; (os.getenv("ONE"), os.getenv("FROM_CREATE"))'
  assert.equal(await text(get, { envs: { ONE: "it's", FROM_CREATE: 'over' } }), '("it\'s", \'over\')')
  assert.equal(await text(get), "(None, 'yes')")
})

test('a cell whose client goes away is interrupted', async () => {
  await sandbox.runCode('kept = 1')
  await assert.rejects(sandbox.runCode('import time\ntime.sleep(300)', { timeoutMs: 1000 }), /timed out/)
  assert.equal(await text('kept', { timeoutMs: 20_000 * patience }), '1')
})

test('contexts: their own state and directory, restart, removal', async () => {
  await sandbox.runCode('y = 1')
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
  assert.equal(await text('import os; os.getcwd()', { context }), '/tmp')
  assert.equal(await text('y', { context }), "NameError: name 'y' is not defined")
  assert.equal(await text('y = 2; y', { context }), '2')
  assert.ok((await sandbox.listCodeContexts()).some((c) => c.id === context.id))
  await sandbox.restartCodeContext(context)
  assert.equal(await text('y', { context }), "NameError: name 'y' is not defined")
  await sandbox.removeCodeContext(context)
  assert.ok(!(await sandbox.listCodeContexts()).some((c) => c.id === context.id))
  await assert.rejects(sandbox.runCode('1', { context, ...soon }), (e) => e.name === 'NotFoundError' && e.message.includes(context.id))
  assert.equal(await text('y'), '1')
})

test('a kernel that dies, and a server that is killed, are started again', async () => {
  assert.equal(await text('import os\nos._exit(1)'), 'ContextRestarting: Context was restarted')
  assert.equal(await text('"y" in globals()'), 'False')
  await sandbox.commands.run('kill -9 $(pgrep -f ^/usr/local/bin/carboy-code-interpreter)').catch(() => {})
  assert.equal(await until(() => text('1 + 1', soon).catch(() => undefined)), '2')
})

test('a language that nothing here runs is refused by name', async () => {
  for (const language of ['r', 'cobol']) {
    await assert.rejects(sandbox.runCode('1', { language, ...soon }), (e) => e.name === 'NotFoundError' && /Jupyter kernel/.test(e.message) && e.message.includes('python'))
  }
  await assert.rejects(sandbox.createCodeContext({ language: 'java' }), (e) => e.name === 'NotFoundError' && /IJava/.test(e.message))
})

test('a template built from it runs code too, and one that lacks what it needs says what', async () => {
  const built = async (name, steps) => {
    await Template.build(steps(Template().fromTemplate('code-interpreter-v1')), name)
    return Sandbox.create(name, { timeoutMs: 300_000 })
  }
  const own = await built(`own-${wall}`, (t) => t.runCmd('echo 41 > /home/user/number'))
  try {
    assert.equal((await own.runCode('int(open("number").read()) + 1')).text, '42')
  } finally {
    await own.kill()
  }
  const without = built(`without-${wall}`, (t) => t
    .runCmd('mkdir -p /home/user/shadow && echo "raise ModuleNotFoundError(name=\'ipykernel\')" > /home/user/shadow/ipykernel.py')
    .setEnvs({ PYTHONPATH: '/home/user/shadow' }))
  await assert.rejects(without, /python3-ipykernel/)
})

test('a pause keeps what cells have, where the wall can', async () => {
  const other = await Sandbox.create({ timeoutMs: 300_000 })
  try {
    await other.runCode('kept = 42')
    await other.pause()
    const back = await Sandbox.connect(other.sandboxId, { timeoutMs: 300_000 })
    const e = await back.runCode('kept')
    if (wall === 'gvisor') assert.equal(e.text, '42')
    else assert.equal(e.error?.name, 'NameError') // a new kernel
  } finally {
    await other.kill()
  }
})
