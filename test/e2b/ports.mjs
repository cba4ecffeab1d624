// A real browser looks at a vite dev server inside a sandbox, by each way there
// is on this machine: CARBOY_WAYS is a JSON object of their URLs. An edit, which
// CARBOY_EDIT makes with the new text as its last argument, is to reach the page
// by vite's WebSocket, without a reload. An edit of CARBOY_PROJECT, the directory of
// which the sandbox has a view that is kept up to date, is to load the page again.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'

const ways = JSON.parse(process.env.CARBOY_WAYS)
const edit = JSON.parse(process.env.CARBOY_EDIT)
const project = process.env.CARBOY_PROJECT
const openedOrigin = new URL(ways.open).origin
let browser, opened

// launch starts the browser, which is not what is tested here: one that hangs is started again.
const launch = async (tries) => {
  try {
    return await chromium.launch({
      executablePath: process.env.CARBOY_CHROMIUM,
      timeout: 25_000,
      args: [
        '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
        '--disable-component-update', '--disable-sync', '--no-proxy-server', '--disable-dev-shm-usage',
      ],
    })
  } catch (err) {
    if (tries === 1) throw err
    console.log('the browser did not start:', err.message)
    return launch(tries - 1)
  }
}

before(async () => { browser = await launch(3) }, { timeout: 90_000 })

after(async () => { await browser?.close() })

// Looked at by time: frames, by which Playwright looks otherwise, may not be drawn by a browser without a screen.
const shows = (page, text) => page.waitForFunction((want) => document.querySelector('#it')?.textContent === want, text, { polling: 100, timeout: 30_000 })

for (const [way, url] of Object.entries(ways)) {
  test(`a page by ${way}, and an edit that reaches it`, { timeout: 90_000 }, async () => {
    const context = await browser.newContext()
    const page = await context.newPage()
    await page.goto(url)
    await page.waitForURL((u) => u.pathname === '/')
    await page.waitForFunction(() => window.connected, undefined, { polling: 100, timeout: 30_000 })
    await page.evaluate(() => { window.marker = 'kept' })
    execFileSync(edit[0], [...edit.slice(1), `edited, seen by ${way}`], { stdio: 'inherit' })
    await shows(page, `edited, seen by ${way}`)
    assert.equal(await page.evaluate(() => window.marker), 'kept', 'it was loaded again')
    if (way === 'open') opened = context
    else await context.close()
  })
}

test('an edit on the host loads a page by forward again', { timeout: 90_000 }, async () => {
  const context = await browser.newContext()
  const page = await context.newPage()
  await page.goto(ways.forward)
  await page.waitForFunction(() => window.connected, undefined, { polling: 100, timeout: 30_000 })
  await page.evaluate(() => { window.marker = 'kept' })
  // As editors save: another file in its place.
  const main = project + '/main.js'
  writeFileSync(main + '.new', readFileSync(main) + "document.title = 'edited on the host'\n")
  renameSync(main + '.new', main)
  await page.waitForFunction(() => document.title === 'edited on the host', undefined, { polling: 100, timeout: 60_000 })
  assert.equal(await page.evaluate(() => window.marker), undefined, 'it was not loaded again')
  await context.close()
})

test('a link works once, in one browser', async () => {
  for (const context of [opened, await browser.newContext()]) {
    const page = await context.newPage()
    const response = await page.goto(ways.open)
    assert.equal(response.status(), 403)
    assert.match(await page.textContent('body'), /used before/)
    await page.close()
  }
  const stranger = await (await browser.newContext()).newPage()
  assert.equal((await stranger.goto(openedOrigin)).status(), 403)
})

test('the cookie is for nothing inside, and the page does not see it', async () => {
  const page = await opened.newPage()
  await page.goto(openedOrigin)
  assert.equal(await page.evaluate(() => document.cookie), '')
  await page.close()
})

test('a page of another origin gets nothing with the cookie', async () => {
  const page = await opened.newPage()
  await page.goto(ways.publish) // another origin, and another site
  const got = await page.evaluate(async (to) => {
    const ask = async (f) => { try { return await f() } catch { return 'failed' } }
    const socket = new Promise((done) => {
      const s = new WebSocket(to.replace('http', 'ws'), 'vite-hmr')
      s.onopen = () => done('open')
      s.onerror = () => done('failed')
    })
    const script = new Promise((done) => {
      const s = document.createElement('script')
      s.type = 'text/javascript'
      s.onload = () => done('loaded')
      s.onerror = () => done('failed')
      s.src = to + '/plain.js'
      document.head.append(s)
    })
    return {
      fetch: await ask(async () => (await fetch(to, { credentials: 'include' })).status),
      post: await ask(async () => (await fetch(to, { method: 'POST', credentials: 'include', mode: 'no-cors', body: 'x' })).type),
      socket: await socket,
      script: await script,
      ran: window.plain ?? 'no',
    }
  }, openedOrigin)
  assert.deepEqual(got, { fetch: 'failed', post: 'opaque', socket: 'failed', script: 'failed', ran: 'no' })
  const frame = await page.evaluate((to) => new Promise((done) => {
    const f = document.createElement('iframe')
    f.onload = () => done('loaded')
    f.src = to
    document.body.append(f)
  }), openedOrigin)
  assert.equal(frame, 'loaded') // our own page says no: the server inside saw nothing
  const texts = await Promise.all(page.frames().slice(1).map((f) => f.evaluate(() => document.querySelector('#it')?.textContent ?? 'none').catch(() => 'none')))
  assert.deepEqual(texts, ['none'])
  await page.close()
})
