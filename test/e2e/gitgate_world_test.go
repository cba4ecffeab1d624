package e2e

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
)

// forgeHost is where a forge is, by name.
const forgeHost = "git.example"

// forgePassword is by what a forge knows somebody by HTTPS, and forgeToken how it is called among secrets.
const (
	forgePassword = "not-for-the-agent-7h3k"
	forgeToken    = "FORGE_TOKEN"
)

// forge is a repository upstream, by a real OpenSSH server and by git http-backend.
type forge struct {
	w    *world
	h    *home
	up   string // the repository, bare
	url  string // by SSH
	pin  string // the host's key
	key  string // the file of the client's, of the home's user
	root bool   // who is root
}

// pair is a key, and the file of it.
func pair(t *testing.T, file string) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	must(t, err)
	must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	s, err := ssh.NewSignerFromKey(key)
	must(t, err)
	return s
}

// newForge makes one in the world of a home, with a commit on main.
func newForge(t *testing.T, w *world, h *home) *forge {
	t.Helper()
	dir := t.TempDir()
	me, err := user.Current()
	must(t, err)
	f := &forge{w: w, h: h, up: filepath.Join(dir, "up.git"), key: filepath.Join(h.dir, "deploy")}
	f.url = "ssh://" + me.Username + "@" + forgeHost + f.up
	host, client := filepath.Join(dir, "host"), pair(t, f.key)
	f.pin = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(pair(t, host).PublicKey())))
	owner, err := os.Stat(h.dir)
	must(t, err)
	uid := int(owner.Sys().(*syscall.Stat_t).Uid)
	must(t, os.Lchown(f.key, uid, uid))
	f.root = uid == 0
	allowed, config := filepath.Join(dir, "authorized"), filepath.Join(dir, "config")
	must(t, os.WriteFile(allowed, ssh.MarshalAuthorizedKey(client.PublicKey()), 0o600))
	must(t, os.WriteFile(config, []byte("AuthorizedKeysFile "+allowed+"\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\nSetEnv HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null\n"), 0o600))
	_ = os.Mkdir("/run/sshd", 0o755) // without which sshd does not start; it stays
	first := filepath.Join(dir, "first")
	for _, args := range [][]string{
		{"init", "-q", "--bare", "-b", "main", f.up},
		{"init", "-q", "-b", "main", first},
		{"-C", first, "-c", "user.name=A", "-c", "user.email=a@b.example", "commit", "-q", "--allow-empty", "-m", "first"},
		{"-C", first, "push", "-q", f.up, "main"},
	} {
		f.git(args...)
	}
	w.resolve(forgeHost, worldA)
	f.ssh(config, host)
	f.https()
	return f
}

// git runs git on the machine.
func (f *forge) git(args ...string) string {
	f.w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.w.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// refs are those upstream.
func (f *forge) refs() string {
	return f.git("-C", f.up, "for-each-ref", "--format=%(refname) %(objectname)")
}

// ssh has an OpenSSH server at the forge's port 22: a process for each connection.
func (f *forge) ssh(config, host string) {
	l := f.w.listen(worldA + ":22")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			file, err := c.(*net.TCPConn).File()
			_ = c.Close()
			if err != nil {
				continue
			}
			cmd := exec.Command("/usr/sbin/sshd", "-i", "-e", "-q", "-f", config, "-h", host)
			cmd.Stdin, cmd.Stdout = file, file
			if err := cmd.Start(); err == nil {
				go func() { _ = cmd.Wait() }() // it ends with its connection
			}
			_ = file.Close()
		}
	}()
}

// https has git http-backend there, for who knows the password.
func (f *forge) https() {
	core := f.git("--exec-path")
	h := &cgi.Handler{
		Path: filepath.Join(core, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(f.up), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent"},
	}
	f.w.https(forgeHost, worldA, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pass, _ := r.BasicAuth(); pass != forgePassword {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
}

// bottle writes one with the remote app, besides what more says of it, and the agent demo in it.
func (f *forge) bottle(wall, more, remote string) {
	f.h.edit(f.h.dir, map[string]string{
		"config/carboy/bottles/dev.md": "---\nisolation: " + wall + "\n" + more + "remotes:\n  app:\n" + remote + "git_user: {name: Bot, email: bot@example.com}\n---\n",
		"config/carboy/agents/demo.md": "---\nbottle: dev\nprovider: custom\n---\n",
		"empty/x":                      "x\n",
	})
}

// byKey is the remote by SSH.
func (f *forge) byKey() string {
	return "    url: " + f.url + "\n    known_host_key: " + f.pin + "\n    key: {path: " + f.key + "}\n"
}

// up makes a sandbox for the agent demo.
func (f *forge) sandbox() string {
	f.w.t.Helper()
	r := f.h.run(nil, "up", "--workspace", f.h.dir+"/empty", "demo", "--", "true")
	if r.code != 0 {
		f.w.t.Fatalf("up: exit code %d\n%s", r.code, r.stderr)
	}
	for _, sb := range f.h.list() {
		if strings.Contains(r.stderr+r.stdout, sb.Name) {
			return sb.Name
		}
	}
	f.w.t.Fatalf("up names no sandbox:\n%s%s", r.stdout, r.stderr)
	return ""
}

// sh runs a script inside.
func (f *forge) sh(name, script string) result {
	f.w.t.Helper()
	return f.h.run(nil, "exec", name, "--", "sh", "-c", script)
}

// works is sh that has to work.
func (f *forge) works(name, script string) string {
	f.w.t.Helper()
	r := f.sh(name, script)
	if r.code != 0 {
		f.w.t.Fatalf("%s: exit code %d\n%s%s", script, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// forged is crossed with a forge, and a home of whoever it is in its world. Its tests run at the same time.
func forged(t *testing.T, f func(t *testing.T, f *forge, wall string)) {
	crossed(t, func(t *testing.T, wall, who string) {
		t.Parallel()
		w := newWorld(t)
		if who == "root" {
			f(t, newForge(t, w, w.home()), wall)
		} else {
			f(t, newForge(t, w, w.ordinaryHome(carboy)), wall)
		}
	})
}

var errNoMirror = errors.New("there is no mirror")

// mirror is the directory of a sandbox's mirrors.
func (h *home) mirror(name string) (string, error) {
	dirs, err := filepath.Glob(h.dir + "/state/carboy/git/" + h.id(name))
	if err != nil || len(dirs) != 1 {
		return "", errors.Join(err, errNoMirror)
	}
	return dirs[0], nil
}
