package escape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/patience"
	"github.com/carboy-sandbox/carboy/test/unpacked"
)

// setting is what a world is like.
type setting struct {
	bin    string
	wall   string
	user   string
	weaken []weak.Weakness
	flags  []string // of its box
	alone  bool     // shares no file with other worlds, and has no boxes but those that are asked for
	pool   int      // and as many warm ones
}

// world is a daemon with one box, and the directories that the box is shown.
type world struct {
	t testing.TB
	setting
	dir    string // everything of the world's
	env    []string
	daemon *exec.Cmd
	log    bytes.Buffer // the daemon's; to be read when it has ended
	box    string
	before map[string]map[string]string // the shared trees as they were, by name
	left   sync.Once                    // see leave
}

// Directories of a world that the box is shown.
const (
	dirWork     = "work"
	dirWritable = "writable"
	dirReadOnly = "read-only"
	dirTools    = "tools"
)

// newWorld starts a box. At the test's end nothing of it is left.
func newWorld(t testing.TB, s setting) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-world-*")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, setting: s, dir: dir}
	w.env = []string{
		"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8",
		"XDG_STATE_HOME=" + dir + "/state", "XDG_RUNTIME_DIR=" + dir + "/run",
		"XDG_CACHE_HOME=" + cacheDir(), "XDG_CONFIG_HOME=" + dir + "/config",
		host.facts.EnvName + "=" + host.facts.Marker,
	}
	if len(s.weaken) > 0 {
		w.env = append(w.env, "CARBOY_WEAKEN="+joined(s.weaken, ","), "CARBOY_WEAK_GUEST="+os.Getenv("CARBOY_WEAK_GUEST"))
	}
	t.Cleanup(w.close)
	if s.alone {
		w.env = append(w.env, "XDG_CACHE_HOME="+dir+"/cache")
		if err := errors.Join(os.MkdirAll(dir+"/config/carboy", 0o700), os.WriteFile(dir+"/config/carboy/config.json", fmt.Appendf(nil, `{"pool":%d}`, s.pool), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/run", 0o700), w.trees()); err != nil {
		t.Fatal(err)
	}
	w.serve()
	w.box = w.another(s.flags...)
	return w
}

// another makes a box that is shown the world's directories.
func (w *world) another(flags ...string) string {
	w.t.Helper()
	args := append([]string{
		"create", "--isolation", w.wall, "--user", w.user, "--workspace", w.path(dirWork),
		"--mount", w.path(dirTools) + ":" + facts.Tools + ":ro",
		"--mount", w.path(dirReadOnly) + ":" + facts.ReadOnly + ":ro",
	}, flags...)
	if w.user != "root" { // who is refused where the host's own tree can be written
		args = append(args, "--mount", w.path(dirWritable)+":"+facts.Writable)
	}
	return strings.TrimSpace(w.ok(args...))
}

func joined(list []weak.Weakness, sep string) string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return strings.Join(out, sep)
}

// cacheDir is shared by all worlds: images are built once.
var cacheDir = sync.OnceValue(func() string {
	dir := filepath.Join(tools, "cache")
	_ = os.Mkdir(dir, 0o700)
	return dir
})

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// trees makes what the box is shown, and remembers how it was.
func (w *world) trees() error {
	files := map[string]string{
		dirWork + "/file": "workspace\n", dirWork + "/gone": "to be removed\n", dirWork + "/swap/inner": "inner\n",
		dirWritable + "/file": "writable\n", dirWritable + "/sub/file": "x\n",
		dirReadOnly + "/file": "read-only\n",
		"outside/file":        "outside\n",
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	// It is the wall that must keep this one.
	if err := os.Chmod(w.path("outside/file"), 0o666); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		// What controls loop devices: no wall has a device of its own of that number.
		name := w.path(dirReadOnly + "/device")
		if err := errors.Join(syscall.Mknod(name, syscall.S_IFCHR, 10<<8|237), os.Chmod(name, 0o444)); err != nil {
			return err
		}
	}
	git := exec.Command("git", "init", "-q", w.path(dirWritable))
	git.Env = append(w.env, "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := git.CombinedOutput(); err != nil {
		return fmt.Errorf("git init: %w: %s", err, out)
	}
	if err := w.listen(dirWritable+"/host.sock", dirReadOnly+"/host.sock"); err != nil {
		return err
	}
	if err := w.shareTools(); err != nil {
		return err
	}
	w.before = map[string]map[string]string{}
	for _, name := range []string{dirWork, dirReadOnly, dirTools, dirWritable + "/.git", "outside"} {
		w.before[name] = snapshot(w.path(name))
	}
	return nil
}

// shareTools copies the tools beside the facts of this world.
func (w *world) shareTools() error {
	if err := os.Mkdir(w.path(dirTools), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"probe", "set-user-id", "file"} {
		// Copies: what one world's box writes must not be seen in another's.
		if err := copyFile(filepath.Join(tools, name), w.path(dirTools+"/"+name)); err != nil {
			return err
		}
	}
	f := host.facts
	f.Wall, f.User, f.Home = w.wall, w.user, w.dir
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(w.path(dirTools+"/facts.json"), b, 0o644)
}

// copyFile copies a program with its mode.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	fi, err := os.Stat(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, b, 0o600), os.Chmod(to, fi.Mode()))
}

// whole wants a look to have something to look at. Of a weakened wall nothing
// but what it lets through is wanted.
func (w *world) whole(ok bool, format string, args ...any) {
	w.t.Helper()
	if !ok && len(w.weaken) == 0 {
		w.t.Errorf(format, args...)
	}
}

func (w *world) close() {
	if w.daemon != nil {
		var left []struct{ Name string }
		if err := json.Unmarshal([]byte(w.run(nil, "ls", "--json").stdout), &left); err != nil {
			w.t.Errorf("list the sandboxes: %v", err)
		}
		for _, box := range left {
			w.run(nil, "rm", "-f", box.Name)
		}
		_ = w.daemon.Process.Signal(syscall.SIGTERM)
		_ = w.daemon.Wait()
		if w.t.Failed() {
			w.t.Logf("the daemon:\n%s", w.log.Bytes()[max(0, w.log.Len()-4000):])
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Error(err)
	}
}

// serve starts the daemon, with a descriptor and a variable too many, as
// programs are that a careless parent starts. One that a client starts by
// itself would get neither.
func (w *world) serve() {
	w.t.Helper()
	if !w.alone { // or what other worlds do would be seen in its own files
		programs, _ := carried.LoadOrStore(w.bin, unpacked.Of(w.bin))
		if err := programs.(*unpacked.Programs).Into(w.dir + "/state"); err != nil {
			w.t.Fatal(err)
		}
	}
	w.daemon = exec.Command(w.bin, "serve")
	w.daemon.Env, w.daemon.Dir, w.daemon.WaitDelay = w.env, w.dir, 5*time.Second
	w.daemon.ExtraFiles = []*os.File{host.root}
	w.daemon.Stdout, w.daemon.Stderr = &w.log, &w.log
	if err := w.daemon.Start(); err != nil {
		w.daemon = nil
		w.t.Fatal(err)
	}
	deadline := time.NewTimer(patience.For(30 * time.Second))
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for w.run(nil, "daemon", "status").code != 0 {
		select {
		case <-deadline.C:
			w.t.Fatal("the daemon does not answer")
		case <-tick.C:
		}
	}
}

// result is how one command line ended.
type result struct {
	stdout, stderr string
	code           int
}

// run runs carboy and waits, at most two minutes.
func (w *world) run(stdin io.Reader, args ...string) result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, w.bin, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = w.env, w.dir, 5*time.Second
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	err := cmd.Run()
	r := result{stdout: out.String(), stderr: errs.String()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.code = exit.ExitCode()
	} else if err != nil {
		w.t.Fatalf("carboy %q: %v", args, err)
	}
	if ctx.Err() != nil {
		w.t.Fatalf("carboy %q: still running after two minutes\n%s%s", args, r.stdout, r.stderr)
	}
	return r
}

// ok runs carboy, wants exit code 0 and returns its output.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	r := w.run(nil, args...)
	if r.code != 0 {
		w.t.Fatalf("carboy %q: exit code %d\nstdout: %s\nstderr: %s", args, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// attempt runs attempts by name, those inside first, and returns what each
// found. Without names it runs all that make sense behind this wall.
func (w *world) attempt(names ...string) []facts.Result {
	w.t.Helper()
	inside, out := split(names)
	var results []facts.Result
	if len(inside) > 0 || len(names) == 0 {
		results = w.probe(inside...)
	}
	for _, o := range outside {
		if len(names) > 0 && !slices.Contains(out, o.name) || len(o.walls) > 0 && !slices.Contains(o.walls, w.wall) {
			continue
		}
		found := o.look(w)
		results = append(results, facts.Result{Probe: o.name, Found: len(found) > 0, Detail: strings.Join(found, "; ")})
	}
	return results
}

// probe runs attempts inside.
func (w *world) probe(names ...string) (results []facts.Result) {
	w.t.Helper()
	args := append([]string{"exec", w.box, "--", facts.Tools + "/probe", "run", facts.Tools + "/facts.json"}, names...)
	r := w.run(nil, args...)
	if r.code != 0 {
		w.t.Fatalf("the probe: exit code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
	}
	for line := range strings.Lines(r.stdout) {
		var one facts.Result
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			w.t.Fatalf("the probe printed %q: %v", line, err)
		}
		results = append(results, one)
	}
	if len(results) == 0 || len(names) > 0 && len(results) != len(names) {
		w.t.Fatalf("asked for %q, the probe answered %d\n%s", names, len(results), r.stderr)
	}
	return results
}
