package e2e

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/api"
)

// awsKey is one of nobody's, put together here so that this file has none.
var awsKey = "AK" + "IA" + "Q3EGRT7YBVJ5WXN2"

const cloned = "cd /home/user 2>/dev/null || cd /root; rm -rf app && git clone -q %s app && cd app && "

// clone is a script that clones, and goes on there.
func (f *forge) clone(then string) string {
	return strings.Replace(cloned, "%s", f.url, 1) + then
}

// TestGitGate: an agent clones, edits, commits and pushes by the URLs of its repository, with no key inside. A
// secret in the history of a push is refused with where it is; what is asked about goes through once a person has said
// so. Its own network leads to none of that, and nothing is left in the end.
func TestGitGate(t *testing.T) {
	t.Parallel()
	forged(t, func(t *testing.T, f *forge, wall string) {
		h := f.h
		f.bottle(wall, "network: on\n", f.byKey())
		name := f.sandbox()
		if steps := h.ok("logs", name); !strings.Contains(steps, "remotes: ") {
			t.Errorf("no step tells git of its remotes:\n%s", steps)
		}
		f.works(name, f.clone("echo hello >a && git add a && git commit -q -m one && git push -q origin HEAD"))
		if got := f.git("-C", f.up, "log", "-1", "--format=%an: %s", "main"); got != "Bot: one" {
			t.Errorf("upstream has %q", got)
		}
		f.noKeyOutside(t, name)
		f.noKeyInside(t, name)
		f.refusesSecret(t, name)
		f.asksAboutHeld(t, name)
		f.closedOtherwise(t, name)
		log := h.ok("logs", name)
		for _, want := range []string{"fetch app: done", "push app: main ", "aws-access-token", "approval ", ": allowed"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
		if dir, err := h.mirror(name); err != nil || !strings.HasSuffix(dir, h.id(name)) {
			t.Errorf("its mirror: %q, %v", dir, err)
		}
		h.ok("rm", "-f", name)
		if left := h.gateFiles(); len(left) > 0 {
			t.Errorf("rm leaves %q", left)
		}
	})
}

// noKeyInside looks through files and environments for the key.
func (f *forge) noKeyInside(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(f.key)
	must(t, err)
	line := strings.Split(string(text), "\n")[2] // of the key itself
	find := "echo %s >/tmp/part; grep -rlF -f /tmp/part /home /root /workspace /etc /run /var /tmp /proc/*/environ 2>/dev/null | grep -v ^/tmp/part$; true"
	if got := f.works(name, strings.Replace(find, "%s", line, 1)); got != "" {
		t.Errorf("the key is inside: %s", got)
	}
	if got := f.works(name, "echo "+line+" >/var/tmp/here; "+strings.Replace(find, "%s", line, 1)); !strings.Contains(got, "/var/tmp/here") {
		t.Errorf("what is there is not found: %q", got)
	}
}

// noKeyOutside looks for the key through the files that are kept of a sandbox, and through the memory of all of its
// processes, its gate's too: root's are found by their control groups.
func (f *forge) noKeyOutside(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(f.key)
	must(t, err)
	line := strings.Split(string(text), "\n")[2]
	raw, err := ssh.ParseRawPrivateKey(text)
	must(t, err)
	for _, part := range []string{line, string(raw.(*ed25519.PrivateKey).Seed())} {
		must(t, filepath.WalkDir(f.h.dir+"/state", func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && fileHolds(t, path, part) {
				t.Errorf("the key is in %s", path)
			}
			return nil // a file may go meanwhile
		}))
		for _, pid := range boxProcesses(t, f.h) {
			if memoryHolds(t, pid, part) {
				t.Errorf("the key is in the memory of the process %d", pid)
			}
		}
	}
	if !f.root {
		return
	}
	f.works(name, "setsid sh -c 'key="+line+"; while :; do sleep 1; done' >/dev/null 2>&1 &")
	until(t, func() bool {
		return slices.ContainsFunc(boxProcesses(t, f.h), func(pid int) bool { return memoryHolds(t, pid, line) })
	})
}

// refusesSecret pushes a secret that a later commit deletes.
func (f *forge) refusesSecret(t *testing.T, name string) {
	t.Helper()
	before := f.refs()
	r := f.sh(name, f.clone("echo; echo 'key = "+awsKey+"' >creds.txt; git add . && git commit -q -m two && git rm -q creds.txt && git commit -q -m three && git rev-parse --short=12 HEAD^ && git push origin HEAD"))
	commit := strings.TrimSpace(r.stdout)
	if r.code == 0 || !strings.Contains(r.stderr, "secret (aws-access-token) creds.txt:1 in "+commit) || strings.Contains(r.stderr, awsKey) {
		t.Errorf("a push with a secret: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if after := f.refs(); after != before {
		t.Errorf("upstream has\n%s\nwant\n%s", after, before)
	}
}

// asksAboutHeld pushes what a forge runs, which a person is asked about: yes, and then no.
func (f *forge) asksAboutHeld(t *testing.T, name string) {
	t.Helper()
	push := func(what string) (<-chan result, api.Approval) {
		done := f.h.asking(name, "sh", "-c", f.clone("mkdir -p .github/workflows && echo 'run: "+what+"' >.github/workflows/x.yml && git add . && git commit -q -m "+what+" && git push origin HEAD"))
		return done, f.h.waits(1)[0]
	}
	done, q := push("held")
	id := strconv.FormatInt(q.ID, 10)
	shown := f.h.ok("approve", "show", id)
	for _, want := range []string{"push app: main ", ".github/workflows/x.yml", "refs/heads/main ", "Bot <bot@example.com>: held", "+run: held", f.url} {
		if !strings.Contains(shown, want) {
			t.Errorf("approve show lacks %q:\n%s", want, shown)
		}
	}
	if r := f.h.run(nil, "approve", "allow", "--scope", "always", "--yes", id); r.code == 0 {
		t.Errorf("a rule was written for a push: %+v", r)
	}
	f.h.ok("approve", "allow", "--yes", id)
	if r := <-done; r.code != 0 || !strings.Contains(r.stderr, "a person said yes") {
		t.Errorf("a push that was allowed: %+v", r)
	}
	if got := f.git("-C", f.up, "log", "-1", "--format=%s", "main"); got != "held" {
		t.Errorf("upstream has %q", got)
	}
	before := f.refs()
	done, q = push("denied")
	f.h.ok("approve", "deny", strconv.FormatInt(q.ID, 10))
	if r := <-done; r.code == 0 || !strings.Contains(r.stderr, "a person said no") {
		t.Errorf("a push that was denied: %+v", r)
	}
	if after := f.refs(); after != before {
		t.Errorf("upstream has\n%s\nwant\n%s", after, before)
	}
}

// closedOtherwise tries the forge by the sandbox's own network, where another sandbox gets through.
func (f *forge) closedOtherwise(t *testing.T, name string) {
	t.Helper()
	const banner = "curl -sS -m 10 --output - telnet://" + forgeHost + ":22 </dev/null | head -c 8"
	const pushes = "curl -ksS -m 20 -o /dev/null -w '%{http_code}' 'https://" + forgeHost + "/up.git/info/refs?service=git-receive-pack'"
	const fetches = "curl -ksS -m 20 -o /dev/null -w '%{http_code}' 'https://" + forgeHost + "/up.git/info/refs?service=git-upload-pack'"
	free := f.h.create("--network", "on")
	for _, tt := range []struct{ what, script, with, without string }{
		{"SSH", banner, "", "SSH-2.0-"},
		{"a push by HTTPS", pushes, "403", "401"},
		{"a fetch by HTTPS", fetches, "401", "401"},
	} {
		if got := f.sh(name, tt.script).stdout; got != tt.with {
			t.Errorf("%s: with the remote %q, want %q", tt.what, got, tt.with)
		}
		if got := f.sh(free, tt.script).stdout; got != tt.without {
			t.Errorf("%s: without it %q, want %q", tt.what, got, tt.without)
		}
	}
	f.h.ok("rm", "-f", free)
	if p := f.h.ok("policy", "show", name); !strings.Contains(p, "git-gate/app/ssh") {
		t.Errorf("the policy does not say so:\n%s", p)
	}
	f.h.ok("set", name, "--network", "on") // a policy that says nothing of it
	if got := f.sh(name, banner).stdout; got != "" {
		t.Errorf("another policy opens SSH: %q", got)
	}
}

// TestGitGateWithoutNetwork: a sandbox that reaches nothing else has its remotes, by HTTPS with a secret, too. While
// the daemon is away git is told so, and goes on when it is back.
func TestGitGateWithoutNetwork(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newWorld(t)
		f := newForge(t, w, w.home())
		h := f.h
		if r := h.run(strings.NewReader(forgePassword), "secret", "add", forgeToken, "-"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		f.url = "https://" + forgeHost + "/up.git"
		if r := h.run(strings.NewReader(realToken), "secret", "add", "API_TOKEN", "-"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		f.bottle(wall, ownSecret, "    url: "+f.url+"\n    key: {provider: secret, name: "+forgeToken+"}\n")
		name := f.sandbox()
		f.refusesOwn(t, name)
		f.works(name, f.clone("echo hello >a && git add a && git commit -q -m one && git push -q origin HEAD"))
		if got := f.git("-C", f.up, "log", "-1", "--format=%s", "main"); got != "one" {
			t.Errorf("upstream has %q", got)
		}
		if r := f.sh(name, "curl -fsS -m 10 https://"+forgeHost+"/"); r.code == 0 {
			t.Errorf("it reaches more: %+v", r)
		}
		if r := h.run(nil, "secret", "rm", forgeToken); r.code == 0 || !strings.Contains(r.stderr, "is used by sandbox "+name) {
			t.Errorf("a secret in use is forgotten: %+v", r)
		}
		f.goesOn(t, name)
		h.ok("stop", name)
		h.ok("start", name)
		f.works(name, f.clone("git log -1 --format=%s | grep -qx two"))
		h.ok("rm", "-f", name)
		if left := h.gateFiles(); len(left) > 0 {
			t.Errorf("rm leaves %q", left)
		}
	})
}

// ownSecret is of a bottle that reaches one host, for which there is a secret.
const ownSecret = `network: policy
secrets: [API_TOKEN]
policy:
  rules:
    - hosts: [api.example]
      secrets: [{name: API_TOKEN, header: Authorization, scheme: Bearer}]
`

// refusesOwn pushes the secrets that the sandbox may use and has never seen, as if it had come by them.
func (f *forge) refusesOwn(t *testing.T, name string) {
	t.Helper()
	before := f.refs()
	for value, rule := range map[string]string{
		realToken: "of this sandbox: API_TOKEN", forgePassword: "of this sandbox: the key of app",
	} {
		text := base64.StdEncoding.EncodeToString([]byte("so it is " + value))
		r := f.sh(name, f.clone("echo "+text+" >notes && git add notes && git commit -q -m notes && git push origin HEAD"))
		if r.code == 0 || !strings.Contains(r.stderr, "secret ("+rule+") notes:1 in ") || strings.Contains(r.stderr, value) {
			t.Errorf("a push with %s: exit code %d\n%s%s", rule, r.code, r.stdout, r.stderr)
		}
	}
	if after := f.refs(); after != before {
		t.Errorf("upstream has\n%s\nwant\n%s", after, before)
	}
}

// goesOn kills the daemon while git asks again and again.
func (f *forge) goesOn(t *testing.T, name string) {
	t.Helper()
	f.works(name, "rm -f /tmp/away /tmp/back; cd /home/user/app && setsid sh -c 'until git fetch 2>&1 | grep 503; do :; done >/tmp/away; until git fetch -q; do :; done; touch /tmp/back' >/dev/null 2>&1 &")
	dir := f.h.dir + "/state/carboy/gates/" + f.h.id(name)
	f.h.killDaemon()
	until(t, func() bool { // by what the gate writes: whoever asks carboy has a daemon again
		files, _ := filepath.Glob(dir + "/*")
		return slices.ContainsFunc(files, func(file string) bool {
			text, _ := os.ReadFile(file)
			return bytes.Contains(text, []byte("service_away"))
		})
	})
	until(t, func() bool { return f.sh(name, "test -e /tmp/back").code == 0 })
	if said := f.works(name, "cat /tmp/away"); !strings.Contains(said, "503") {
		t.Errorf("while the daemon was away git said %q", said)
	}
	f.works(name, f.clone("echo two >b && git add b && git commit -q -m two && git push -q origin HEAD"))
}
