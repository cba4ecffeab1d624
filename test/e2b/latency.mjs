// How long the unmodified SDK waits, printed as JSON: for each thing that it
// does, the milliseconds of each of CARBOY_ROUNDS rounds. The rounds are
// interleaved, so that what else the machine does falls on all alike.
import { randomBytes } from 'node:crypto'
import { Sandbox } from './lib.mjs'

const rounds = Number(process.env.CARBOY_ROUNDS)
const pause = Number(process.env.CARBOY_PAUSE_MS || 0) // between rounds: a pool fills up again
const small = randomBytes(1 << 10)
const large = randomBytes(100 << 20)
const took = {}

async function timed(name, f) {
  const start = performance.now()
  const result = await f()
  ;(took[name] ??= []).push(performance.now() - start)
  return result
}

async function echo(sandbox) {
  let seen = ''
  let wake = () => {}
  const terminal = await sandbox.pty.create({
    cols: 80, rows: 24, timeoutMs: 0,
    onData: (bytes) => { seen += Buffer.from(bytes).toString(); wake() },
  })
  const has = async (text) => {
    while (!seen.includes(text)) await new Promise((resolve) => { wake = resolve })
  }
  const send = (text) => sandbox.pty.sendInput(terminal.pid, Buffer.from(text))
  await send('stty -echo; PS1=; printf "%s%s" rea dy\n')
  await has('ready')
  await send('cat\n')
  for (let i = 0; i < 3; i++) { // the first ones wait for cat to start
    await timedLast('terminal echo', i === 2, async () => {
      const mark = `mark-${i}`
      await send(mark + '\n')
      await has(mark)
    })
  }
  await terminal.kill()
}

async function timedLast(name, counts, f) {
  return counts ? timed(name, f) : f()
}

for (let i = 0; i < rounds; i++) {
  const start = performance.now()
  const sandbox = await timed('create', () => Sandbox.create('base', { timeoutMs: 300_000 }))
  await timed('first command', () => sandbox.commands.run('true'))
  ;(took['create and first command'] ??= []).push(performance.now() - start)
  await timed('second command', () => sandbox.commands.run('true'))
  const file = small.buffer.slice(small.byteOffset, small.byteOffset + small.length)
  await timed('write 1 KiB', () => sandbox.files.write('/home/user/small', file))
  await timed('read 1 KiB', () => sandbox.files.read('/home/user/small', { format: 'bytes' }))
  const big = large.buffer.slice(large.byteOffset, large.byteOffset + large.length)
  await timed('write 100 MiB', () => sandbox.files.write('/home/user/large', big))
  const back = await timed('read 100 MiB', () => sandbox.files.read('/home/user/large', { format: 'bytes' }))
  if (!Buffer.from(back).equals(large)) throw new Error('what came back is not what was written')
  await echo(sandbox)
  await timed('kill', () => sandbox.kill())
  if (pause) await new Promise((resolve) => { setTimeout(resolve, pause) })
}
console.log(JSON.stringify(took))
