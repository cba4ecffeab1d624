package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
	"github.com/carboy-sandbox/carboy/test/internet"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// carboy is the built one, and installed where scripts/agents.sh put the agents.
var carboy, installed = os.Getenv("CARBOY_BIN"), os.Getenv("CARBOY_AGENTS")

var walls = []string{"gvisor", "process"}

// place is a user's home with a repository, on a machine whose internet has
// nothing but models.
type place struct {
	t     testing.TB
	dir   string
	repo  string
	env   []string
	model *fakemodel.Server
	net   *internet.Internet
}

// newPlace makes one. At the test's end its daemon is stopped and all of its
// sandboxes are removed.
func newPlace(t testing.TB, model *fakemodel.Server, env ...string) *place {
	t.Helper()
	if carboy == "" || installed == "" {
		t.Skip("make test-agents runs it")
	}
	net, err := internet.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := net.Serve(internet.A, internet.ByHost(model.Handlers()), model.Hosts()...); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "carboy-agents-*")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, repo: dir + "/home/project", model: model, net: net}
	t.Cleanup(p.close)
	p.write("roots.pem", string(net.Roots()))
	p.write("config/carboy/config.json", `{"resolvers": ["`+internet.Resolver+`:53"]}`)
	p.write("home/project/greet.txt", "helo world\n")
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = append([]string{
		"HOME=" + dir + "/home", "PATH=" + installed + "/node_modules/.bin:" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=xterm-256color", "COLORTERM=truecolor",
		"XDG_STATE_HOME=" + dir + "/state", "XDG_RUNTIME_DIR=" + dir + "/run", "XDG_CACHE_HOME=" + dir + "/cache", "XDG_CONFIG_HOME=" + dir + "/config",
		"SSL_CERT_FILE=" + dir + "/roots.pem", "SSL_CERT_DIR=/nonexistent",
	}, env...)
	p.git("init", "-q", "-b", "main")
	p.git("config", "user.name", "A Person")
	p.git("config", "user.email", "person@example.com")
	p.git("add", ".")
	p.git("commit", "-q", "-m", "first")
	return p
}

func (p *place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) git(args ...string) {
	p.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = p.repo, p.env
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// read is a file of the repository's, on the host.
func (p *place) read(name string) string {
	raw, err := os.ReadFile(filepath.Join(p.repo, name))
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (p *place) close() {
	for _, name := range p.names() {
		p.run("rm", "-f", name)
	}
	p.run("daemon", "stop")
	p.net.Close()
	if p.t.Failed() {
		for i, r := range p.model.Requests("") {
			p.t.Logf("%d: %s %s%s %d, %d bytes", i, r.Method, r.Host, r.Path, r.Status, len(r.Body))
			_ = os.WriteFile(fmt.Sprintf("%s/%03d", p.t.ArtifactDir(), i), r.Body, 0o600) // it is of use to people alone
		}
		if log, err := os.ReadFile(p.dir + "/state/carboy/daemon.log"); err == nil {
			p.t.Logf("daemon.log:\n%s", log[max(0, len(log)-4000):])
		}
	}
	for _, left := range p.processes() {
		p.t.Errorf("left over: %s", left)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		p.t.Error(err)
	}
}

// processes lists those that name the place on their command line, once they
// had time to end.
func (p *place) processes() (found []string) {
	patience.Until(10*time.Second, func() bool {
		found = nil
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range lines {
			if raw, _ := os.ReadFile(name); bytes.Contains(raw, []byte(p.dir)) {
				found = append(found, fmt.Sprintf("%s: %.120q", name, raw))
			}
		}
		return len(found) == 0
	})
	return found
}

// result is how a command line ended.
type result struct {
	stdout, stderr string
	code           int
}

// command is carboy's, in the repository.
func (p *place) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, carboy, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.repo, p.env, 5*time.Second
	return cmd
}

// start starts carboy with nothing on its standard input.
func (p *place) start(args ...string) *running {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(5*time.Minute))
	r := &running{p: p, args: args, ctx: ctx, cancel: cancel, cmd: p.command(ctx, args...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := p.net.Start(r.cmd); err != nil {
		p.t.Fatal(err)
	}
	return r
}

// running is a command that was started.
type running struct {
	p              *place
	args           []string
	ctx            context.Context
	cancel         func()
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// ended reports whether it has ended.
func (r *running) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func (r *running) wait() result {
	r.p.t.Helper()
	defer r.cancel()
	err := r.cmd.Wait()
	res := result{stdout: r.stdout.String(), stderr: r.stderr.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		res.code = exit.ExitCode()
	} else if err != nil {
		r.p.t.Fatalf("carboy %q: %v", r.args, err)
	}
	if r.ctx.Err() != nil {
		r.p.t.Fatalf("carboy %q: still running after five minutes\n%s\n%s", r.args, res.stdout, res.stderr)
	}
	return res
}

func (p *place) run(args ...string) result { return p.start(args...).wait() }

// ok runs carboy, wants exit code 0 and returns its output.
func (p *place) ok(args ...string) string {
	p.t.Helper()
	r := p.run(args...)
	if r.code != 0 {
		p.t.Fatalf("carboy %q: exit code %d\n%s\n%s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// names are those of the place's sandboxes.
func (p *place) names() (names []string) {
	var list []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(p.run("ls", "--json").stdout), &list); err != nil {
		p.t.Errorf("carboy ls --json: %v", err)
	}
	for _, sb := range list {
		names = append(names, sb.Name)
	}
	return names
}

// killDaemon kills it with -9 and waits until it is gone.
func (p *place) killDaemon() {
	p.t.Helper()
	var st struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(p.ok("daemon", "status", "--json")), &st); err != nil {
		p.t.Fatal(err)
	}
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.until("the daemon is gone", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", st.PID))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// until waits for a fact of the outside world that nobody announces.
func (p *place) until(what string, fact func() bool) {
	p.t.Helper()
	if !p.within(2*time.Minute, fact) {
		p.t.Fatalf("waited two minutes in vain: %s", what)
	}
}

// within reports whether it becomes one in that time.
func (p *place) within(limit time.Duration, fact func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
	return true
}
