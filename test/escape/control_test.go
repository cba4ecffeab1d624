package escape

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// mighty are attempts that take more than an ordinary user has on the open
// host, or than each kernel and administrator lets one have. Root finds
// something with them, on a host of its own: see TestRootSeesAHostOfItsOwn.
var mighty = []string{
	"become-root", "bpf", "change-root", "enter-namespaces", "file-capabilities", "file-handles", "kernel-files",
	"kernel-log", "machine", "make-devices", "metadata", "newborn-memory", "process-files", "raw-sockets", "routes",
	"terminal-input", "trace", "watch-everything",
	"uncover", // the last: it takes /proc away
}

// first is an attempt of the first process's own user: see TestFirstIsSignalled.
const first = "signals"

// control says where an attempt finds something. An ordinary user of the open
// host has to find something with each that is shown nowhere else.
func control(name string) string {
	for _, r := range rows {
		if slices.Contains(r.noticed, name) {
			return "without " + r.title()
		}
	}
	inside, _ := split([]string{name})
	switch {
	case slices.Contains(mighty, name):
		return "as root of a host"
	case name == first:
		return "as the first process's user"
	case len(inside) > 0:
		return onOpenHost
	}
	return ""
}

const onOpenHost = "on the open host"

// controls counts the attempts, and those that have a control.
func controls(t *testing.T) (have, all int) {
	t.Helper()
	for _, name := range attemptNames(t) {
		all++
		if control(name) != "" {
			have++
		} else {
			t.Errorf("%s is seen to find something nowhere", name)
		}
	}
	return have, all
}

func TestEveryAttemptHasAControl(t *testing.T) {
	have, all := controls(t)
	t.Logf("%d of %d attempts have a control", have, all)
	names := attemptNames(t)
	for _, name := range append(slices.Clone(mighty), first) {
		if !slices.Contains(names, name) {
			t.Errorf("there is no attempt %q", name)
		}
	}
}

var openOnce struct {
	sync.Once
	results []facts.Result
}

// openHost is what an ordinary user's attempts find where there is no wall at all; nothing
// without root, which is needed to be another user.
func openHost(t *testing.T) []facts.Result {
	t.Helper()
	openOnce.Do(func() {
		if os.Geteuid() != 0 {
			return
		}
		inside, _ := split(attemptNames(t))
		// What would change the machine, or call at somebody else's, is not for here.
		inside = slices.DeleteFunc(inside, func(n string) bool { return n == "machine" || n == "metadata" })
		openOnce.results = probeHost(t, inside, openUser)
	})
	return openOnce.results
}

// onlyByRows tells attempts that nothing but a row shows to find anything on this machine.
func onlyByRows(t *testing.T) func(name string) bool {
	t.Helper()
	shown := append([]string{first}, mighty...)
	for _, r := range openHost(t) {
		if r.Found {
			shown = append(shown, r.Probe)
		}
	}
	return func(name string) bool { return !slices.Contains(shown, name) }
}

// TestAttemptsSeeTheOpenHost is the suite's own control: where there is no
// wall at all, an ordinary user finds what is planted and gets through.
func TestAttemptsSeeTheOpenHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	for _, r := range tried(t, slices.Clone(openHost(t))) {
		if where := control(r.Probe); r.Error == "" && !r.Found && where != onOpenHost {
			t.Logf("%s finds nothing here, but %s: %s", r.Probe, where, r.Detail)
			continue
		}
		wantFound(t, r)
	}
}

func wantFound(t *testing.T, r facts.Result) {
	t.Helper()
	switch {
	case r.Error != "":
		t.Errorf("%s broke: %s", r.Probe, r.Error)
	case !r.Found:
		t.Errorf("%s finds nothing: %s", r.Probe, r.Detail)
	default:
		t.Logf("%s: %s", r.Probe, r.Detail)
	}
}

// openUser runs a probe as an ordinary user.
func openUser(_ *testing.T, argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{1}}}
	return cmd
}

// TestFirstIsSignalled has an ordinary user in a process namespace whose first
// process is that user's, which no box's is.
func TestFirstIsSignalled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	for _, r := range probeHost(t, []string{first}, func(_ *testing.T, argv []string) *exec.Cmd {
		return exec.Command("unshare", append([]string{
			"--pid", "--fork", "--mount-proc", "--kill-child", "setpriv", "--reuid=1000", "--regid=1000", "--clear-groups",
			"sh", "-c", `"$@"; exit $?`, "sh",
		}, argv...)...)
	}) {
		wantFound(t, r)
	}
}

// TestRootSeesAHostOfItsOwn has root make the mightier attempts, with all that
// root may and no wall, but in namespaces whose processes, mounts and network
// nobody else has. An agent without a box is there, of another user's, and
// somebody answers at the address of clouds' metadata. The clock is the one
// thing that could be changed for all: the right to that is left out.
func TestRootSeesAHostOfItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread is in another network
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", "169.254.169.254/32", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
	}
	l, err := net.Listen("tcp", "169.254.169.254:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const script = `mkfifo "$0/ready" && { sleep 600 | setpriv --reuid=65533 --regid=65533 --clear-groups "$0/carboy-guest" hold >"$0/ready" & } &&
		read -r _ <"$0/ready" && exec setpriv --bounding-set=-sys_time,-sys_boot "$@"`
	for _, r := range tried(t, probeHost(t, mighty, func(t *testing.T, argv []string) *exec.Cmd {
		dir := filepath.Dir(argv[2])
		if err := copyFile(argv[0], filepath.Join(dir, "carboy-guest")); err != nil {
			t.Fatal(err)
		}
		return exec.Command("unshare", append([]string{
			"--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--kill-child", "sh", "-c", script, dir,
		}, argv...)...)
	})) {
		wantFound(t, r)
	}
}

// probeHost runs attempts with no wall, in the process that as makes of them.
func probeHost(t *testing.T, names []string, as func(*testing.T, []string) *exec.Cmd) (results []facts.Result) {
	t.Helper()
	f := host.facts
	dir, err := os.MkdirTemp("", "carboy-open-*")
	if err != nil {
		t.Fatal(err)
	}
	f.Wall, f.User, f.Home = facts.Process, "user", dir // which is on the command line
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "facts.json")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := as(t, append([]string{filepath.Join(tools, "probe"), "run", file}, names...))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), f.EnvName + "=" + f.Marker}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{host.root}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("probe: %v\n%s", err, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		var r facts.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		results = append(results, r)
	}
	return results
}
