package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
	"github.com/carboy-sandbox/carboy/test/unpacked"
)

// carboy is the built carboy that all tests run.
var carboy string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer shared.remove()
	carboy = os.Getenv("CARBOY_BIN")
	if carboy != "" {
		return runCarried(m)
	}
	dir, err := os.MkdirTemp("", "carboy-e2e-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("make", "-C", "../..", "build", "BIN="+dir)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "make build:", err)
		return 1
	}
	carboy = filepath.Join(dir, "carboy")
	return runCarried(m)
}

func runCarried(m *testing.M) int {
	carried = unpacked.Of(carboy)
	code := m.Run()
	if err := carried.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// home is a world of its own: state, sockets and cache that no other shares.
type home struct {
	t   testing.TB
	dir string
	env []string
	// start starts a command: in the machine's own network, or a world's.
	start func(*exec.Cmd) error
}

// newHome makes one. At the test's end its daemon is stopped, all of its
// sandboxes are removed, and what is left over is an error.
func newHome(t testing.TB, env ...string) *home {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-home-*")
	if err != nil {
		t.Fatal(err)
	}
	h := &home{t: t, dir: dir, start: (*exec.Cmd).Start, env: append([]string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8",
		"XDG_STATE_HOME=" + dir + "/state", "XDG_RUNTIME_DIR=" + dir + "/run",
		"XDG_CACHE_HOME=" + cacheDir(t), "XDG_CONFIG_HOME=" + dir + "/config",
	}, env...)}
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

// sharedDirs are directories that tests share: they go when all have run.
type sharedDirs struct {
	mu   sync.Mutex
	made []string // guarded by mu
}

var shared sharedDirs

func (s *sharedDirs) mkdir(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made = append(s.made, dir)
	}
	return dir, err
}

func (s *sharedDirs) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range s.made {
		_ = os.RemoveAll(dir)
	}
}

var sharedCache = sync.OnceValues(func() (string, error) { return shared.mkdir("carboy-cache-*") })

// cacheDir is shared by all homes of a run: what lies there is built once.
func cacheDir(t testing.TB) string {
	dir, err := sharedCache()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (h *home) close() {
	for _, sb := range h.list() {
		h.run(nil, "rm", "-f", sb.Name)
	}
	h.run(nil, "daemon", "stop")
	for _, left := range h.leftovers() {
		h.t.Errorf("left over: %s", left)
	}
	h.showLog()
	if err := os.RemoveAll(h.dir); err != nil {
		h.t.Error(err)
	}
}

// showLog shows the daemon's log of a test that failed.
func (h *home) showLog() {
	h.t.Helper()
	if !h.t.Failed() {
		return
	}
	if log, err := os.ReadFile(h.dir + "/state/carboy/daemon.log"); err == nil {
		h.t.Logf("daemon.log:\n%s", tail(log, 8000))
	}
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// result is how one command line ended.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
}

// run runs carboy and waits, at most two minutes.
func (h *home) run(stdin io.Reader, args ...string) result {
	h.t.Helper()
	return h.runFor(patience.For(2*time.Minute), stdin, args...)
}

func (h *home) runFor(limit time.Duration, stdin io.Reader, args ...string) result {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := h.command(ctx, args...)
	var out, errb bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errb
	start := time.Now()
	err := h.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	r := result{stdout: out.String(), stderr: errb.String(), took: time.Since(start)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.code = exit.ExitCode()
	} else if err != nil {
		h.t.Fatalf("carboy %q: %v", args, err)
	}
	if ctx.Err() != nil {
		h.t.Fatalf("carboy %q: still running after %v\nstdout: %s\nstderr: %s", args, limit, tail(out.Bytes(), 2000), tail(errb.Bytes(), 2000))
	}
	return r
}

func (h *home) command(ctx context.Context, args ...string) *exec.Cmd {
	h.carry()
	cmd := exec.CommandContext(ctx, carboy, args...)
	cmd.Env = h.env
	cmd.Dir = h.dir
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// carried are the programs in the binary under test.
var carried *unpacked.Programs

// carry spares a home of root's the unpacking of programs.
func (h *home) carry() {
	h.t.Helper()
	if fi, err := os.Stat(h.dir); err != nil || fi.Sys().(*syscall.Stat_t).Uid != 0 {
		return
	}
	if err := carried.Into(filepath.Join(h.dir, "state")); err != nil {
		h.t.Fatal(err)
	}
}

// ok runs carboy, wants exit code 0 and returns its output.
func (h *home) ok(args ...string) string {
	h.t.Helper()
	r := h.run(nil, args...)
	if r.code != 0 {
		h.t.Fatalf("carboy %q: exit code %d\nstdout: %s\nstderr: %s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// create makes a sandbox and returns its name.
func (h *home) create(args ...string) string {
	h.t.Helper()
	return strings.TrimSpace(h.ok(append([]string{"create"}, args...)...))
}

// listed is what these tests read of `carboy ls --json`.
type listed struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	Ended string `json:"ended"`
}

func (h *home) list() []listed {
	h.t.Helper()
	r := h.run(nil, "ls", "--json")
	var l []listed
	if err := json.Unmarshal([]byte(r.stdout), &l); err != nil {
		h.t.Errorf("carboy ls --json: %v\n%s%s", err, r.stdout, r.stderr)
	}
	return l
}

// daemonPID finds the home's daemon.
func (h *home) daemonPID() int {
	h.t.Helper()
	var st struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(h.ok("daemon", "status", "--json")), &st); err != nil {
		h.t.Fatal(err)
	}
	return st.PID
}

// killDaemon kills it with -9 and waits until it is gone.
func (h *home) killDaemon() {
	h.t.Helper()
	pid := h.daemonPID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	until(h.t, func() bool { return !alive(pid) })
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !strings.HasPrefix(strings.TrimSpace(string(rest)), "Z")
}

// until waits for a fact of the outside world that nobody announces.
func until(t testing.TB, fact func() bool) {
	t.Helper()
	if !patience.Until(30*time.Second, fact) {
		t.Fatalf("waited for %v in vain", patience.For(30*time.Second))
	}
}

// leftovers names what the home still holds of the machine.
func (h *home) leftovers() []string {
	var left []string
	patience.Until(10*time.Second, func() bool {
		left = slices.Concat(h.processes(), h.mountsAndLoops(), h.cgroups())
		return len(left) == 0
	})
	if boxes, _ := filepath.Glob(h.dir + "/state/carboy/boxes/*/*"); len(boxes) > 0 {
		left = append(left, fmt.Sprintf("%d box directories", len(boxes)))
	}
	if sockets, _ := filepath.Glob(h.dir + "/run/carboy/vsock/*"); len(sockets) > 0 {
		left = append(left, fmt.Sprintf("sockets of sandboxes %q", sockets))
	}
	for _, gate := range h.gateFiles() {
		left = append(left, "gate "+gate)
	}
	return left
}

// processes lists those that name the home on their command line.
func (h *home) processes() []string {
	var found []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !alive(pid) {
			continue
		}
		raw, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.Contains(raw, []byte(h.dir)) {
			found = append(found, fmt.Sprintf("process %d: %.120q", pid, raw))
		}
	}
	return found
}

func (h *home) mountsAndLoops() []string {
	var found []string
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, h.dir) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if b, err := os.ReadFile(l); err == nil && strings.Contains(string(b), h.dir) {
			found = append(found, l+" "+strings.TrimSpace(string(b)))
		}
	}
	return found
}

// cgroups lists what the home has among the host's cgroups.
func (h *home) cgroups() []string {
	var found []string
	for _, wall := range wallNames {
		sum := sha256.Sum256([]byte(h.dir + "/state/carboy/boxes/" + wall))
		ns := hex.EncodeToString(sum[:8])
		for _, glob := range []string{"/sys/fs/cgroup/*/carboy/" + ns, "/sys/fs/cgroup/carboy/" + ns} {
			groups, _ := filepath.Glob(glob)
			for _, g := range groups {
				found = append(found, "cgroup "+g)
			}
		}
	}
	return found
}
