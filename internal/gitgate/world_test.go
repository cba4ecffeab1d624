package gitgate_test

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// sshRun is a directory without which sshd does not start as root. A machine that runs one has it.
const sshRun = "/run/sshd"

func TestMain(m *testing.M) {
	role.Become(jail.Roles())
	if os.Geteuid() == 0 {
		_ = os.Mkdir(sshRun, 0o755) // it stays: another test may run
	}
	var err error
	if template, err = os.MkdirTemp("", "gitgate-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(template)
	os.Exit(code)
}

// template holds an upstream of which tests have copies, once one has been made. Who looks
// for one, or makes it, has the lock.
var (
	template   string
	templating sync.Mutex
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// repo is a directory in which real git works as a person's does.
type repo struct {
	t   testing.TB
	dir string
	env []string
}

func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b.example", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b.example", "GIT_ADVICE=0",
	}
}

// try runs git, and returns all that it says.
func (r *repo) try(args ...string) (string, error) { return r.tryIn("", args...) }

func (r *repo) tryIn(in string, args ...string) (string, error) {
	out, err := r.run(in, args...)
	return strings.TrimSpace(out), err
}

// pack returns a pack as it is: its last byte may look like white space.
func (r *repo) pack(in string, flags ...string) (string, error) {
	return r.run(in, append([]string{"pack-objects"}, flags...)...)
}

func (r *repo) run(in string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, append(gitEnv(), r.env...), strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// git is try, where it has to work.
func (r *repo) git(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// write writes a file.
func (r *repo) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

// commit writes a file, and commits all that there is.
func (r *repo) commit(name, text, subject string) string {
	r.t.Helper()
	r.write(name, text)
	r.git("add", "-A", "-f")
	r.git("commit", "-q", "-m", subject)
	return r.git("rev-parse", "HEAD")
}

// link commits a link that leads there.
func (r *repo) link(name, to string) {
	r.t.Helper()
	id, err := r.tryIn(to, "hash-object", "-w", "--stdin")
	must(r.t, err)
	r.git("update-index", "--add", "--cacheinfo", "120000,"+id+","+name)
	r.git("commit", "-q", "-m", "link "+name)
}

// refuses pushes what may not pass, and returns what git said.
func (r *repo) refuses(args ...string) string {
	r.t.Helper()
	out, err := r.try(append([]string{"push"}, args...)...)
	if err == nil {
		r.t.Errorf("git push %s: it passed: %s", strings.Join(args, " "), out)
	}
	return out
}

// server is an OpenSSH server. Each connection is a process of its own, on the other end
// of a socket, so that no port is open.
type server struct {
	config string
	host   ssh.Signer
	client ssh.Signer

	mu   sync.Mutex
	wrap func(net.Conn) net.Conn // what connections go through
	key  string                  // the file of the host's key
}

// signer makes a key, and the file of it.
func signer(t testing.TB, file string) ssh.Signer {
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

// newServer makes one that runs a person's shell without that person's set-up, which may take
// longer than all that is tested.
func newServer(t testing.TB) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{config: filepath.Join(dir, "config"), key: filepath.Join(dir, "host")}
	s.host, s.client = signer(t, s.key), signer(t, filepath.Join(dir, "client"))
	keys := filepath.Join(dir, "authorized")
	must(t, os.WriteFile(keys, ssh.MarshalAuthorizedKey(s.client.PublicKey()), 0o600))
	must(t, os.WriteFile(s.config, []byte("AuthorizedKeysFile "+keys+"\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\nSetEnv HOME=/nonexistent GIT_CONFIG_GLOBAL=/dev/null\n"), 0o600))
	return s
}

// pin is the host's key as a remote's configuration has it.
func (s *server) pin() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.host.PublicKey())))
}

// dial is a gitgate.Dial.
func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "sshd"), os.NewFile(uintptr(fds[1]), "ssh")
	defer func() { _, _ = theirs.Close(), ours.Close() }()
	s.mu.Lock()
	wrap, key := s.wrap, s.key
	s.mu.Unlock()
	cmd := exec.Command("/usr/sbin/sshd", "-i", "-e", "-q", "-f", s.config, "-h", key)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // it ends with its connection
	conn, err := net.FileConn(ours)
	if err != nil || wrap == nil {
		return conn, err
	}
	return wrap(conn), nil
}

// Signer implements gitgate.Keys.
func (s *server) Signer(context.Context, string) (ssh.Signer, error) { return s.client, nil }

// Credential implements gitgate.Keys.
func (s *server) Credential(context.Context, string) (gitgate.Credential, error) {
	return gitgate.Credential{}, errors.New("there is none")
}

// world is an upstream, a gate before it, and an agent's clone.
type world struct {
	t      testing.TB
	server *server
	up     *repo // bare
	gate   *gitgate.Gate
	dir    string // the gate's
	url    string // of the remote, as the agent has it
	agent  *repo
	events *events
}

type events struct {
	mu  sync.Mutex
	all []gitgate.Event
}

func (e *events) add(ev gitgate.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// bare makes an upstream with a commit on main.
func bare(t testing.TB, args ...string) *repo {
	t.Helper()
	up := &repo{t: t, dir: filepath.Join(t.TempDir(), "up")}
	from := filepath.Join(template, "up"+strings.Join(args, ""))
	templating.Lock()
	defer templating.Unlock()
	if _, err := os.Stat(from); err != nil {
		must(t, os.CopyFS(from, os.DirFS(made(t, args...).dir)))
	}
	must(t, os.CopyFS(up.dir, os.DirFS(from)))
	return up
}

// made makes what bare copies.
func made(t testing.TB, args ...string) *repo {
	t.Helper()
	up := &repo{t: t, dir: filepath.Join(t.TempDir(), "up")}
	must(t, os.Mkdir(up.dir, 0o755))
	up.git(append([]string{"init", "-q", "--bare", "-b", "main"}, args...)...)
	first := &repo{t: t, dir: filepath.Join(t.TempDir(), "first")}
	must(t, os.Mkdir(first.dir, 0o755))
	first.git(append([]string{"init", "-q", "-b", "main"}, args...)...)
	first.commit("README", "hello\n", "first")
	first.git("push", "-q", up.dir, "main")
	return up
}

// sshRemote is a remote by SSH.
func sshRemote(t testing.TB, s *server, up *repo, policy gitgate.Policy) gitgate.Remote {
	t.Helper()
	me, err := user.Current()
	must(t, err)
	return gitgate.Remote{Name: "up", URL: "ssh://" + me.Username + "@up.example" + up.dir, HostKeys: []string{s.pin()}, Policy: policy}
}

// newWorld makes one, whose agent has cloned.
func newWorld(t testing.TB, policy gitgate.Policy, change ...func(*gitgate.Config)) *world {
	t.Helper()
	w := &world{t: t, server: newServer(t), up: bare(t)}
	w.serve(sshRemote(t, w.server, w.up, policy), change...)
	w.agent = w.clone("agent")
	return w
}

// serve begins a gate.
func (w *world) serve(r gitgate.Remote, change ...func(*gitgate.Config)) {
	w.t.Helper()
	git, err := jail.Find(w.t.Context(), os.Getenv("PATH"))
	must(w.t, err)
	w.events = &events{}
	c := gitgate.Config{Dir: filepath.Join(w.t.TempDir(), "gate"), Git: git, Remotes: []gitgate.Remote{r}, Keys: w.server, Dial: w.server.dial, Observe: w.events.add}
	for _, f := range change {
		f(&c)
	}
	w.dir = c.Dir
	w.gate, err = gitgate.New(c)
	must(w.t, err)
	front := httptest.NewServer(w.gate)
	w.t.Cleanup(func() {
		front.Close()
		must(w.t, w.gate.Close())
	})
	w.url = front.URL + "/" + r.Name + ".git"
}

// clone has the agent clone by the gate.
func (w *world) clone(name string, args ...string) *repo {
	w.t.Helper()
	dir := w.t.TempDir()
	(&repo{t: w.t, dir: dir}).git(append(append([]string{"clone", "-q"}, args...), w.url, name)...)
	return &repo{t: w.t, dir: filepath.Join(dir, name)}
}

// ref is what upstream has.
func (w *world) ref(name string) string {
	out, err := w.up.try("rev-parse", "--verify", "--quiet", name)
	if err != nil {
		return ""
	}
	return out
}

// contains fails for a text that lacks a part.
func contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("it lacks %q: %s", p, text)
		}
	}
}
