// Templates: built by the SDK, and what sandboxes of them are.
import assert from 'node:assert/strict'
import { mkdtemp, writeFile, mkdir, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Sandbox, Template, request, until } from './lib.mjs'

const context = await mkdtemp(join(tmpdir(), 'carboy-template-'))
after(() => rm(context, { recursive: true }))
await mkdir(join(context, 'app/sub'), { recursive: true })
await writeFile(join(context, 'app/main.sh'), '#!/bin/sh\necho from-main\n', { mode: 0o755 })
await writeFile(join(context, 'app/sub/data.txt'), 'data\n')
await symlink('sub/data.txt', join(context, 'app/link'))
await writeFile(join(context, 'one.txt'), 'one\n')

const base = () => Template({ fileContextPath: context }).fromTemplate('base')

async function build(template, name, options = {}) {
  const logs = []
  const info = await Template.build(template, name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (e) => logs.push(e), ...options })
  return { ...info, logs, text: logs.map((e) => e.message).join('\n') }
}

const first = base()
  .copy('app', '/srv/app')
  .copy('one.txt', '/srv/', { mode: 0o640 })
  .runCmd('echo built > /srv/built && id -un > /srv/who', { user: 'root' })
  .setWorkdir('/srv/work')
  .setEnvs({ GREETING: 'hello' })
  .setEnvs({ TWICE: '$GREETING-$GREETING `id` $(id)' })
  .runCmd('echo "$GREETING" > greeting && pwd > cwd')

test('a template is built, and sandboxes start from it', async () => {
  const got = await build(first, 'first', { tags: ['v1'] })
  assert.match(got.text, /\[builder 1\/7\] COPY/)
  assert.deepEqual((await Template.getTags(got.templateId)).map((t) => t.tag), ['v1'])
  await Template.assignTags('first:v1', ['default', 'stable'])
  const sandboxes = await Promise.all(Array.from({ length: 3 }, () => Sandbox.create('first', { timeoutMs: 120_000 })))
  try {
    for (const s of sandboxes) {
      const r = await s.commands.run('cat /srv/built /srv/who greeting cwd /srv/app/link; /srv/app/main.sh; echo "$TWICE"; stat -c %a:%U /srv/one.txt /srv/app/sub; pwd; id -un')
      assert.equal(r.stdout, 'built\nroot\nhello\n/srv/work\ndata\nfrom-main\nhello-hello `id` $(id)\n640:user\n755:user\n/srv/work\nuser\n')
      await s.files.write('/srv/work/greeting', 'mine')
    }
    const info = await sandboxes[0].getInfo()
    assert.equal(info.templateId, got.templateId)
  } finally {
    await Promise.all(sandboxes.map((s) => s.kill()))
  }
  const again = await Sandbox.create('first:stable', { timeoutMs: 300_000 })
  assert.equal((await again.commands.run('cat greeting')).stdout, 'hello\n', 'what another sandbox wrote is not there')
  await again.kill()
})

test('what was built before is taken from the cache, unless that is skipped', async () => {
  const cached = await build(first, 'first')
  assert.equal(cached.logs.filter((e) => e.message.startsWith('CACHED')).length, 7)
  assert.match(cached.text, /already cached/)
  const forced = await build(first, 'first', { skipCache: true })
  assert.equal(forced.logs.filter((e) => e.message.startsWith('CACHED')).length, 0)
})

test('another template is a base', async () => {
  const got = await build(Template().fromTemplate('first').runCmd('cat greeting > /srv/work/second'), 'second')
  const s = await Sandbox.create(got.templateId, { timeoutMs: 300_000, envs: { GREETING: 'mine' } })
  assert.equal((await s.commands.run('cat second; echo $GREETING')).stdout, 'hello\nmine\n')
  await s.kill()
})

test('a step that fails says which, and why', async () => {
  const bad = base().runCmd('echo before').runCmd('echo oops >&2; exit 3')
  await assert.rejects(build(bad, 'bad'), /exit 3.*status 3/)
  await assert.rejects(Sandbox.create('bad'), /no build that is ready/)
  await assert.rejects(build(base().setUser('no:such:user!'), 'bad'), /USER/)
  await assert.rejects(build(Template().fromTemplate('nosuch').runCmd('true'), 'bad'), /not found|no such template/)
  await assert.rejects(
    build(Template().fromAWSRegistry('1.dkr.example/x', { accessKeyId: 'a', secretAccessKey: 'b', region: 'c' }).runCmd('true'), 'bad'),
    /fromImageRegistry aws/)
})

test('a start command runs at each start, and is awaited', async () => {
  const t = base().setStartCmd('sleep 0.3; echo $$ > /tmp/started; exec sleep 1000', 'test -s /tmp/started')
  await build(t, 'starts')
  const s = await Sandbox.create('starts', { timeoutMs: 300_000 })
  assert.match((await s.commands.run('kill -0 $(cat /tmp/started) && echo alive')).stdout, /alive/)
  await s.kill()
  await assert.rejects(build(base().setStartCmd('echo no port; exit 7', 'false'), 'never'), /start command ended with status 7.*no port/)
})

test('names, tags and lists', async () => {
  assert.equal(await Template.exists('first'), true)
  assert.equal(await Template.exists('nothing-of-the-kind'), false)
  await Template.removeTags('first', ['stable'])
  await assert.rejects(Sandbox.create('first:stable'), /stable/)
  const list = (await request('GET', '/templates')).json
  assert.ok(list.some((t) => t.aliases[0] === 'first' && t.buildStatus === 'ready' && t.spawnCount >= 4 && t.buildCount === 3))
  const page = await request('GET', '/v2/templates?limit=1')
  assert.equal(page.json.length, 1)
  const next = await request('GET', `/v2/templates?limit=1&nextToken=${page.headers.get('x-next-token')}`)
  assert.notEqual(next.json[0].templateID, page.json[0].templateID)
  const one = (await request('GET', '/templates/first')).json
  assert.equal(one.builds.length, 3)
  assert.equal((await request('PATCH', '/v2/templates/first', { public: true })).status, 200)
  assert.equal((await request('GET', '/templates/first')).json.public, true)
  const id = one.builds[0].buildID
  const logs = (await request('GET', `/templates/first/builds/${id}/logs?direction=backward&limit=1`)).json.logs
  assert.equal(logs[0].message, 'Build finished')
  assert.equal((await request('POST', '/templates', { dockerfile: 'FROM x' })).status, 501)
})

test('a build is cancelled, and a template deleted under way', async () => {
  for (const end of ['cancel', 'delete']) {
    const t = base().runCmd('echo begun; sleep 600')
    const info = await Template.buildInBackground(t, `cut-${end}`, { cpuCount: 1, memoryMB: 256 })
    const status = () => request('GET', `/templates/${info.templateId}/builds/${info.buildId}/status`)
    await until(async () => (await status()).json.logs.some((l) => l.endsWith('begun')))
    if (end === 'cancel') {
      assert.equal((await request('DELETE', `/templates/${info.templateId}/builds/${info.buildId}`)).status, 204)
      assert.deepEqual(await status().then((r) => [r.json.status, r.json.reason.message]), ['error', 'the build was cancelled'])
    }
    assert.equal((await request('DELETE', `/templates/${info.templateId}`)).status, 204)
    assert.equal((await status()).status, 404)
  }
})

test('a link takes one archive, once', async () => {
  const hash = 'ab'.repeat(32)
  const link = (await request('GET', `/templates/first/files/${hash}`)).json
  assert.equal(link.present, false)
  assert.equal((await fetch(link.url, { method: 'PUT', body: 'x' })).status, 200)
  assert.equal((await fetch(link.url, { method: 'PUT', body: 'x' })).status, 404)
  assert.equal((await request('GET', `/templates/first/files/${hash}`)).json.present, true)
  assert.equal((await request('GET', '/templates/first/files/..%2f..%2fetc')).status, 400)
})
