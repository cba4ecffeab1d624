// What templates are built from: images of registries, Dockerfiles and files; and
// who may use what was built.
import assert from 'node:assert/strict'
import { mkdtemp, writeFile, mkdir, symlink, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { Sandbox, Template, request, until } from './lib.mjs'

const open = process.env.CARBOY_REGISTRY
const closed = process.env.CARBOY_PRIVATE_REGISTRY
const password = process.env.CARBOY_REGISTRY_PASSWORD
const other = process.env.CARBOY_LIMITED_KEY

const context = await mkdtemp(join(tmpdir(), 'carboy-template-from-'))
after(() => rm(context, { recursive: true, force: true }))
await mkdir(join(context, 'src/deep/er'), { recursive: true })
await mkdir(join(context, 'src/skipped'), { recursive: true })
for (const f of ['a.txt', 'b.txt', 'c.md', 'deep/d.txt', 'deep/er/e.txt', 'skipped/s.txt']) {
  await writeFile(join(context, 'src', f), `${f}\n`)
}
await writeFile(join(context, 'outside.txt'), 'outside\n')
await symlink('../outside.txt', join(context, 'src/out'))
await symlink('deep/d.txt', join(context, 'src/in'))
await writeFile(join(context, '.dockerignore'), '**/skipped/**\n')

const size = { cpuCount: 1, memoryMB: 256 }

async function build(template, name, options = {}) {
  const logs = []
  const info = await Template.build(template, name, { ...size, onBuildLogs: (e) => logs.push(e), ...options })
  return { ...info, text: logs.map((e) => e.message).join('\n') }
}

// An image need have no bash, which the SDK's commands want: its files are read.
async function written(name, path) {
  const s = await Sandbox.create(name, { timeoutMs: 300_000 })
  try {
    return await s.files.read(path)
  } finally {
    await s.kill()
  }
}

async function inside(name, command, options = {}) {
  const s = await Sandbox.create(name, { timeoutMs: 300_000, ...options })
  try {
    return (await s.commands.run(command)).stdout
  } finally {
    await s.kill()
  }
}

test('an image is pulled from a registry', async () => {
  const t = Template().fromImage(`${open}/open/small:1`).runCmd('echo $COLOUR > /srv/colour; cat /etc/os-release >> /srv/colour', { user: 'root' }).runCmd('id -un > /tmp/who')
  const got = await build(t, 'pulled')
  assert.match(got.text, /pulling .*open\/small:1/)
  assert.match(got.text, /FROM .*open\/small:1@sha256:/)
  assert.equal(await written('pulled', '/srv/colour'), 'green\nNAME=Smaller\n')
  assert.equal(await written('pulled', '/tmp/who'), 'user\n')
  assert.match((await build(t, 'pulled')).text, /CACHED/)
  assert.match((await build(t, 'pulled', { skipCache: true })).text, /pulling/)
  await assert.rejects(build(Template().fromImage(`${open}/open/nothing:1`).runCmd('true'), 'missing'), /nothing/)
})

test('a private registry is shown its password, which stays nowhere', async () => {
  const image = `${closed}/private/small:1`
  await assert.rejects(build(Template().fromImage(image).runCmd('true'), 'private'), /401|denied|unauthorized|credentials/i)
  const wrong = await build(Template().fromImage(image, { username: 'puller', password: 'wrong-4711' }).runCmd('true'), 'private').catch((e) => e)
  assert.ok(wrong instanceof Error && !wrong.message.includes('wrong-4711'), `${wrong}`)
  const got = await build(Template().fromImage(image, { username: 'puller', password }).runCmd('env > /tmp/env'), 'private')
  assert.ok(!got.text.includes(password))
  const all = await written('private', '/tmp/env')
  assert.match(all, /COLOUR=green/)
  assert.ok(!all.includes(password))
  for (const path of ['', `/builds/${got.buildId}/status`, `/builds/${got.buildId}/logs`]) {
    const r = await request('GET', `/templates/private${path}`)
    assert.equal(r.status, 200)
    assert.ok(!r.text.includes(password), path)
  }
})

test('a Dockerfile is built', async () => {
  const t = Template({ fileContextPath: context }).fromDockerfile(`FROM ${open}/open/small:1
ARG WHO=world
ENV GREETING=hello
ENV OTHER=$GREETING-$GREETING
COPY src/a.txt src/b.txt /srv/files/
COPY --chown=user src/deep /srv/deep
WORKDIR /srv/files
RUN (echo "$OTHER"; pwd; id -un; cat a.txt b.txt /srv/deep/er/e.txt) > /srv/all
USER user
`)
  await build(t, 'dockerfile')
  assert.equal(await written('dockerfile', '/srv/all'), 'hello-hello\n/srv/files\nroot\na.txt\nb.txt\ndeep/er/e.txt\n')
})

test('files are copied by patterns, with and without what links lead to', async () => {
  const t = Template({ fileContextPath: context }).fromTemplate('base')
    .copy('src/*.txt', '/srv/flat/')
    .copy('src/**/*.txt', '/srv/tree/')
    .copy('src', '/srv/links', { resolveSymlinks: false })
    .copy('src', '/srv/resolved', { resolveSymlinks: true, gzip: false })
    .copyItems([{ src: ['outside.txt', 'src/c.md'], dest: '/srv/items/', mode: 0o600, user: 'root' }])
    .makeDir('/srv/made', { user: 'root' }).makeSymlink('/srv/links', '/srv/made/link', { user: 'root' })
    .rename('/srv/flat/b.txt', '/srv/flat/renamed', { user: 'root' }).remove('/srv/flat/a.txt', { user: 'root' })
  await build(t, 'copies')
  const out = await inside('copies', `cd /srv; find flat tree links resolved items -type f -o -type l | LC_ALL=C sort | grep -v '^links/deep\\|^resolved/deep'
readlink links/in links/out; cat resolved/in resolved/out; readlink made/link; stat -c %a:%U items/c.md`)
  assert.equal(out, ['flat/renamed', 'items/c.md', 'items/outside.txt', 'links/a.txt', 'links/b.txt', 'links/c.md', 'links/in', 'links/out',
    'resolved/a.txt', 'resolved/b.txt', 'resolved/c.md', 'resolved/in', 'resolved/out', 'tree/a.txt', 'tree/b.txt', 'tree/deep/d.txt', 'tree/deep/er/e.txt',
    'deep/d.txt', '../outside.txt', 'deep/d.txt', 'outside', '/srv/links', '600:root', ''].join('\n'))
})

test('builds are watched, and what is there is told', async () => {
  const t = Template().fromTemplate('base').runCmd('echo one; sleep 1; echo two')
  const info = await Template.buildInBackground(t, 'watched:v1', { ...size, minFreeDiskMb: 100 })
  const lines = []
  const done = await until(async () => {
    const s = await Template.getBuildStatus(info, { logsOffset: lines.length })
    lines.push(...s.logEntries.map((e) => e.message))
    return s.status === 'ready' && s
  })
  assert.equal(done.buildID, info.buildId)
  assert.deepEqual(lines.filter((l) => l === 'one' || l === 'two'), ['one', 'two'])
  assert.equal(await Template.aliasExists('watched'), true)
  assert.equal(await Template.exists('watched:v1'), true)
  assert.equal(await Template.exists('watched:v2'), false)
  const assigned = await Template.assignTags('watched:v1', 'v2')
  assert.deepEqual([assigned.buildId, assigned.tags], [info.buildId, ['v2']])
  assert.equal(await Template.exists('watched:v2'), true)
  await Template.removeTags('watched', ['v2'])
  assert.deepEqual((await Template.getTags('watched')).map((x) => x.tag), ['v1'])
})

test('another owner uses what is public, for as long as it is', async () => {
  const t = Template().fromTemplate('base').runCmd('echo shared > /srv/shared', { user: 'root' })
  const { templateId } = await build(t, 'shared')
  const [name] = (await request('GET', '/templates')).json.find((x) => x.templateID === templateId).names
  const use = (ref) => inside(ref, 'cat /srv/shared', { apiKey: other })
  const publish = async (on) => assert.equal((await request('PATCH', '/v2/templates/shared', { public: on })).status, 200)
  await assert.rejects(use(name), /not found|no such template/)
  await publish(true)
  assert.equal(await use(name), 'shared\n')
  assert.equal(await use(templateId), 'shared\n')
  await assert.rejects(use('shared'), /not found|no such template/)
  await build(Template().fromTemplate(name).runCmd('cat /srv/shared > /tmp/mine'), 'mine', { apiKey: other })
  assert.equal(await inside('mine', 'cat /tmp/mine', { apiKey: other }), 'shared\n')
  const as = { 'X-API-KEY': other }
  assert.ok(!(await request('GET', '/templates', undefined, as)).json.some((x) => x.templateID === templateId))
  for (const [method, path, body] of [['DELETE', `/templates/${templateId}`], ['PATCH', `/v2/templates/${templateId}`, { public: false }],
    ['GET', `/templates/${templateId}/files/${'ab'.repeat(32)}`], ['POST', '/templates/tags', { target: name, tags: ['x'] }]]) {
    assert.equal((await request(method, path, body, as)).status, 404, `${method} ${path}`)
  }
  await publish(false)
  await assert.rejects(use(name), /not found|no such template/)
  await assert.rejects(use(templateId), /not found|no such template/)
  assert.equal(await inside('mine', 'cat /tmp/mine', { apiKey: other }), 'shared\n', 'what was built from it goes on')
  assert.equal((await request('DELETE', '/templates/shared')).status, 204)
  assert.equal(await inside('mine', 'cat /tmp/mine', { apiKey: other }), 'shared\n')
})
