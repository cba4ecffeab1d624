// What every version of E2B's client does most, against one daemon. The
// environment is lib.mjs's.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import './old.mjs'
import { clients, until, within } from './raw.mjs'

for (const name of clients) {
  test(`${name}: commands, terminals, files, watches, links`, async () => {
    const { Sandbox, CommandExitError, NotFoundError } = await import(name)
    const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, metadata: { client: name }, envs: { ONE: '1' } })
    try {
      const r = await sandbox.commands.run('echo $ONE; echo err >&2; pwd')
      assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, '1\n/home/user\n', 'err\n'])
      await assert.rejects(sandbox.commands.run('exit 5'), (e) => e instanceof CommandExitError && e.exitCode === 5)

      const cat = await sandbox.commands.run('head -n 1', { background: true, stdin: true })
      assert.ok((await sandbox.commands.list()).some((p) => p.pid === cat.pid))
      await sandbox.commands.sendStdin(cat.pid, 'line\n')
      assert.equal((await cat.wait()).stdout, 'line\n')
      const sleep = await sandbox.commands.run('sleep 1000', { background: true })
      const again = await sandbox.commands.connect(sleep.pid)
      assert.equal(await sleep.kill(), true)
      await assert.rejects(again.wait(), CommandExitError)
      await assert.rejects(sandbox.commands.run('sleep 1000', { timeoutMs: 300 }), (e) => e.name === 'TimeoutError')

      let text = ''
      const pty = await sandbox.pty.create({ cols: 70, rows: 20, onData: (d) => { text += new TextDecoder().decode(d) } })
      await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size\n'))
      await until('the size', () => text.includes('20 70'))
      await sandbox.pty.kill(pty.pid)
      await assert.rejects(pty.wait())

      assert.equal(await sandbox.files.makeDir('d'), true)
      assert.equal(await sandbox.files.makeDir('d'), false)
      let seen
      const event = new Promise((resolve) => { seen = resolve })
      const watch = await sandbox.files.watchDir('d', (e) => { if (e.name === 'sub/f') seen(e.type) }, { recursive: true })
      await sandbox.files.write('d/sub/f', 'content')
      assert.equal(await within(event, 'the event'), 'create')
      await watch.stop()
      assert.equal(await sandbox.files.read('d/sub/f'), 'content')
      await sandbox.files.write([{ path: 'd/1', data: '1' }, { path: 'd/2', data: new Blob(['2']) }])
      await sandbox.files.rename('d/2', 'd/3')
      assert.deepEqual((await sandbox.files.list('d')).map((e) => e.name), ['1', '3', 'sub'])
      assert.equal(await sandbox.files.exists('d/2'), false)
      await assert.rejects(sandbox.files.read('d/2'), NotFoundError)
      await sandbox.files.remove('d')

      assert.match(new URL(await sandbox.downloadUrl('x', { useSignatureExpiration: 60 })).search, /signature=v1_/)
      assert.equal(await sandbox.isRunning(), true)
      await sandbox.setTimeout(60_000)
    } finally {
      await sandbox.kill()
    }
    assert.equal(await sandbox.isRunning(), false)
  })
}
