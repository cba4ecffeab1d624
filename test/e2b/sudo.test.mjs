// sudo inside a sandbox that was made by the SDK. The environment holds
// E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY and CARBOY_WALL.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { CommandExitError, Sandbox, wall } from './lib.mjs'

let sandbox
const run = async (script, opts) => (await sandbox.commands.run(script, opts)).stdout
const fails = async (script, code, stderr, opts) => {
  await assert.rejects(sandbox.commands.run(script, opts), (e) => {
    assert.ok(e instanceof CommandExitError, `${e}`)
    assert.equal(e.exitCode, code, `${script}: ${e.stderr}`)
    assert.match(e.stderr, stderr, script)
    return true
  })
}

before(async () => {
  sandbox = await Sandbox.create('base', { timeoutMs: 300_000, envs: { SANDBOXS: 'own' } })
})

after(async () => {
  await sandbox?.kill()
})

if (wall === 'process') {
  test('where there is no root, sudo says so', () => fails('sudo id', 1, /^sudo: no command of this sandbox can be root: .*gvisor/))
} else {
  test('who a command is, where, and with what environment', async () => {
    assert.equal(await run('sudo id -u; sudo -u user id -un; sudo -u nobody id -un; sudo -uroot -- id -un; sudo --user=nobody id -un'),
      '0\nuser\nnobody\nroot\nnobody\n')
    assert.equal(await run('cd /var && sudo pwd; sudo -D /etc pwd; sudo -i pwd'), '/var\n/etc\n/root\n')
    assert.equal(await run('MINE=1 sudo sh -c \'echo "$MINE|$HOME|$USER|$SUDO_USER|$SUDO_UID|$SANDBOXS"\''), '|/root|root|user|1000|own\n')
    assert.equal(await run('MINE=1 LD_PRELOAD= sudo -E sh -c \'echo "$MINE|$HOME|${LD_PRELOAD-none}"\'; MINE=1 sudo -EH sh -c \'echo "$HOME"\''),
      '1|/home/user|none\n/root\n')
    assert.equal(await run('sudo A=1 B="two words" sh -c \'echo "$A $B"\'; sudo -s echo "a  b" "\\$HOME"; sudo -i echo "it\'s"'), '1 two words\na  b /root\nit\'s\n')
  })

  test('input, output, errors and exit codes are the command’s', async () => {
    assert.equal(await run('printf "one\\ntwo\\n" | sudo tee /etc/made && cat /etc/made && stat -c %U /etc/made'), 'one\ntwo\none\ntwo\nroot\n')
    await fails('sudo sh -c "echo oh >&2; exit 7"', 7, /^oh$/m)
    await fails('sudo sh -c "kill -TERM \\$\\$"', 143, /^$/)
    await fails('sudo no-such-program', 1, /^sudo: no-such-program: .*not found/m)
    await fails('sudo -u nobody-here id', 1, /^sudo: .*nobody-here/)
    await fails('sudo --chroot=/ id', 1, /^sudo: --chroot: not available here\nusage: /)
    await fails('sudo', 1, /^usage: /)
    assert.match(await run('sudo -l; sudo -V; sudo -h; sudo -v; sudo -k; sudo -n true && echo asks for nothing'), /NOPASSWD: ALL[^]*usage: [^]*asks for nothing\n$/)
    const sum = (await run('sudo head -c 20000000 /dev/zero | sha256sum; head -c 20000000 /dev/zero | sha256sum')).split('\n')
    assert.equal(sum[0], sum[1])
  })

  test('what templates do with it', async () => {
    await run('sudo mkdir -p /srv/app && sudo chown user:user /srv/app && echo mine > /srv/app/f && sudo rm -r /srv/app')
    await run('echo \'echo installed\' | sudo tee /usr/local/bin/tool >/dev/null && sudo chmod +x /usr/local/bin/tool && tool')
    assert.equal(await run('sudo sudo id -u; sudo -u nobody sh -c "sudo id 2>&1" || echo refused'),
      '0\nsudo: uid 65534 is not the sandbox\'s user, who alone may do this\nrefused\n')
  })

  test('signals reach the command, and what kills its caller kills it', async () => {
    assert.equal(await run(`
      sudo sh -c 'trap "echo asked to end; exit 3" TERM; echo up >/tmp/up; while :; do sleep 0.05; done' & p=$!
      until [ -e /tmp/up ]; do sleep 0.05; done
      kill -TERM $p; wait $p; echo $?`), 'asked to end\n3\n')
    const command = await sandbox.commands.run('sudo sh -c "echo ready; sleep 1000.25"', { background: true, onStdout: () => started() })
    let started = () => {}
    await new Promise((resolve) => { if (command.stdout) resolve(); else started = resolve })
    await command.kill()
    assert.equal(await run('for i in $(seq 100); do pgrep -f "sleep 1000.2[5]" >/dev/null || break; sleep 0.1; done; pgrep -cf "sleep 1000.2[5]" || true'), '0\n')
  })

  test('no command outlives the end of its caller by the connection that another keeps', async () => {
    // It is parked in a pair of sockets that are in each other alone.
    await sandbox.files.write('/tmp/park.py', `
import socket, array, os, time
words = ["sh", "-c", "echo $$ >>/tmp/parked; exec sleep 1000.5"]
body = b"\\0".join([b"/tmp", str(len(words)).encode()] + [w.encode() for w in words])
null = os.open("/dev/null", os.O_RDWR)
def ask():
    s = socket.socket(socket.AF_UNIX); s.connect("\\0carboy/sudo")
    s.sendmsg([str(len(body)).encode() + b"\\n" + body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 3))])
    return s
s = ask()
while not os.path.exists("/tmp/parked"): time.sleep(0.05)
a, b = socket.socketpair()
for x in (a, b): socket.send_fds(x, [b"x"], [s.fileno(), a.fileno(), b.fileno()])
time.sleep(1000)`)
    const command = await sandbox.commands.run('python3 /tmp/park.py', { background: true })
    await run('until [ -s /tmp/parked ]; do sleep 0.05; done')
    await command.kill()
    assert.equal(await run('for i in $(seq 100); do pgrep -f "sleep 1000.[5]" >/dev/null || break; sleep 0.1; done; pgrep -cf "sleep 1000.[5]" || true'), '0\n')
    // What ends by itself leaves what it started.
    assert.equal(await run('(sleep 0.3; sudo id -u >/tmp/later 2>&1) >/dev/null 2>&1 & sleep 0.05'), '')
    assert.equal(await run('until [ -s /tmp/later ]; do sleep 0.05; done; cat /tmp/later'), '0\n')
    await fails('sudo PATH=/tmp no-such-program', 1, /^sudo: no-such-program: command not found; looked in \/tmp$/m)
  })

  test('a terminal', async () => {
    let text = ''
    const decoder = new TextDecoder()
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => { text += decoder.decode(data) } })
    await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('sudo sh -c \'read answer; echo "got <$answer> as $(id -u)"; tty\'\nyes\nexit\n'))
    await terminal.wait()
    assert.match(text, /got <yes> as 0/)
    assert.match(text, /\/dev\/pts\/\d/)
  })

  test('many at once, and after a pause', async () => {
    assert.equal(await run('for i in $(seq 40); do sudo id -u & done | sort | uniq -c | tr -d " "; wait'), '400\n')
    await run('(sudo sh -c "while [ ! -e /tmp/go ]; do sleep 0.1; done; id -u >/tmp/went" >/dev/null 2>&1 &)')
    await sandbox.pause()
    sandbox = await sandbox.connect()
    assert.equal(await run('sudo id -u; touch /tmp/go; until [ -s /tmp/went ]; do sleep 0.1; done; cat /tmp/went'), '0\n0\n')
    assert.equal(await run('ls -l /usr/local/bin/sudo | cut -c1-10; sudo -u user sudo id -u'), '-rwxr-xr-x\n0\n')
  })
}
