package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// limited makes groups of version 1 with limits, as a host does for an instance's
// commands. It returns how to count in them, and the words with which root's
// shell enters them.
func limited(t *testing.T) (counts cgroup.Options, enter string) {
	t.Helper()
	for _, g := range []struct {
		controller, file, limit, counter string
		at                               *string
	}{
		{"memory", "memory.limit_in_bytes", "67108864", "memory.oom_control", &counts.OOMFile},
		{"pids", "pids.max", "20", "pids.events", &counts.PIDsFile},
	} {
		dir, err := os.MkdirTemp("/sys/fs/cgroup/"+g.controller, "carboy-test-")
		if err != nil {
			t.Skip("no cgroup v1 here:", err)
		}
		t.Cleanup(func() { removeGroup(t, dir) })
		if err := os.WriteFile(filepath.Join(dir, g.file), []byte(g.limit), 0); err != nil {
			t.Skip(err)
		}
		enter += "echo 0 >" + dir + "/tasks; "
		*g.at = filepath.Join(dir, g.counter)
	}
	return counts, enter
}

func removeGroup(t *testing.T, dir string) {
	var err error
	patience.Until(20*time.Second, func() bool { // the last process is on its way out
		err = unix.Rmdir(dir)
		return !errors.Is(err, unix.EBUSY)
	})
	if err != nil {
		t.Error(dir, err)
	}
}

// inside is a shell's script, run as root, who may enter the groups.
func inside(script string) *guestv1.Command {
	c := sh(script)
	c.User = "root"
	return c
}

// answer gives a command the line that it waits for.
func (w *world) answer(id string) {
	w.t.Helper()
	if _, err := w.write(id, 0, "\n", true); err != nil {
		w.t.Fatal(err)
	}
}

const eat = "tail /dev/zero" // one line without end, all of it in memory

func TestOutOfMemoryIsTold(t *testing.T) {
	counts, enter := limited(t)
	tests := []struct {
		name   string
		script string
		reason guestv1.Reason
		code   int32
		limits []string
	}{
		{"itself", "exec " + eat, guestv1.Reason_REASON_OUT_OF_MEMORY, 137, nil},
		{"its-child", eat, guestv1.Reason_REASON_EXITED, 137, []string{"memory"}},
		{"goes-on", eat + "; exit 0", guestv1.Reason_REASON_EXITED, 0, []string{"memory"}},
		{"next", "exit 3", guestv1.Reason_REASON_EXITED, 3, nil},
		{"killed-by-itself", "kill -9 $$", guestv1.Reason_REASON_SIGNALLED, 137, nil},
	}
	for _, counted := range []bool{true, false} {
		t.Run(map[bool]string{true: "counted", false: "not-counted"}[counted], func(t *testing.T) {
			s := setup{cgroups: true}
			if counted {
				s.counts = counts
			}
			w := open(t, s)
			for _, tt := range tests {
				reason, limits := tt.reason, tt.limits
				if !counted {
					limits = nil
					if reason == guestv1.Reason_REASON_OUT_OF_MEMORY {
						reason = guestv1.Reason_REASON_SIGNALLED
					}
				}
				e := w.run(tt.name, inside(enter+tt.script)).exit
				if e.GetReason() != reason || e.GetCode() != tt.code || !slices.Equal(e.GetLimits(), limits) {
					t.Errorf("%s: %v, want %v, %d, %q", tt.name, e, reason, tt.code, limits)
				}
			}
		})
	}
}

// What the kernel did to one command is not said of another that ran at the
// same time, though one counter serves both.
func TestOutOfMemoryBesideOthers(t *testing.T) {
	counts, enter := limited(t)
	w := open(t, setup{cgroups: true, counts: counts})
	// These begin before the hogs and end after them.
	waiting := map[string]string{
		"fails":   "exit 1",
		"is-shot": "kill -9 $$",
		"is-well": "exit 0",
	}
	for name, then := range waiting {
		cmd := inside(enter + "echo up; read x; " + then)
		cmd.Stdin = true
		if _, err := w.start(name, cmd, until("up")); err != nil {
			t.Fatal(err)
		}
	}
	if e := w.run("hog", inside(enter+"exec "+eat)).exit; e.GetReason() != guestv1.Reason_REASON_OUT_OF_MEMORY {
		t.Errorf("hog: %v", e)
	}
	if e := w.run("hogs", inside(enter+eat)).exit; e.GetReason() != guestv1.Reason_REASON_EXITED || !slices.Equal(e.GetLimits(), []string{"memory"}) {
		t.Errorf("parent of a hog: %v", e)
	}
	for name := range waiting {
		w.answer(name)
		eventually(t, name+" does not end", func() bool { return w.get(name).GetExit() != nil })
		e := w.get(name).GetExit()
		if e.GetReason() == guestv1.Reason_REASON_OUT_OF_MEMORY || e.GetLimits() != nil {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// A kill that a caller asked for is called that, whatever memory did before.
func TestKilledAfterOutOfMemory(t *testing.T) {
	counts, enter := limited(t)
	w := open(t, setup{cgroups: true, counts: counts})
	if _, err := w.start("c", inside(enter+eat+"; echo up; exec sleep 1000"), until("up")); err != nil {
		t.Fatal(err)
	}
	w.signal("c", 9, true, "me")
	eventually(t, "no exit", func() bool { return w.get("c").GetExit() != nil })
	if e := w.get("c").GetExit(); e.GetReason() != guestv1.Reason_REASON_KILLED || e.GetKilledBy() != "me" || !slices.Equal(e.GetLimits(), []string{"memory"}) {
		t.Errorf("exit %v", e)
	}
}

func TestPIDLimitIsTold(t *testing.T) {
	counts, enter := limited(t)
	counts.PIDs = 20
	w := open(t, setup{cgroups: true, counts: counts})
	cmd := inside(enter + "echo up; read x")
	cmd.Stdin = true
	if e := w.run("few", inside(enter+"true & true & wait")).exit; e.GetLimits() != nil {
		t.Errorf("few: %v", e)
	}
	if _, err := w.start("beside", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	e := w.run("many", inside(enter+"while :; do sleep 1000 & done")).exit
	if e.GetCode() == 0 || !slices.Equal(e.GetLimits(), []string{"pids"}) || !strings.Contains(e.GetError(), "ended") {
		t.Errorf("many: %v", e)
	}
	w.answer("beside")
	eventually(t, "it does not end", func() bool { return w.get("beside").GetExit() != nil })
	if e := w.get("beside").GetExit(); e.GetLimits() != nil {
		t.Errorf("beside: %v", e)
	}
	if n := alive(t, "sleep\x001000\x00"); n != 0 {
		t.Errorf("%d processes keep others from starting", n)
	}
}

// Where the agent counts in place of the kernel, a command too many is told
// as the kernel's refusal is.
func TestFullSandboxStartsNothing(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"agent/cgroup.procs": "", "commands/cgroup.subtree_control": "",
		"commands/pids.events": "max 0\n", "commands/pids.max": "8\n", "commands/pids.current": "8\n",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	base, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	tree, err := cgroup.Prepare(base, cgroup.Options{Root: dir, PIDs: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	e := open(t, setup{tree: tree}).run("c", sh("true")).exit
	if e.GetCode() != 126 || !slices.Equal(e.GetLimits(), []string{"pids"}) || !strings.Contains(e.GetError(), "as many processes as it may") {
		t.Errorf("exit %v", e)
	}
}

func TestNotFoundSaysWhere(t *testing.T) {
	long := strings.Repeat("/x", 2000)
	many := make([]string, 40)
	for i := range many {
		many[i] = "/d" + strings.Repeat("i", i)
	}
	tests := []struct {
		name, path, program string
		hidden              []string
		want, not           string
	}{
		{"plain", "/usr/bin:/bin", "no-such-tool", nil, "no-such-tool: command not found; looked in /usr/bin, /bin", "host's"},
		{
			"hidden", "/bin", "no-such-tool",
			[]string{"/opt/a/bin", "/srv/b"},
			"looked in /bin; of the host's PATH this sandbox does not show /opt/a/bin, /srv/b", "",
		},
		{"twice", "/bin:/bin:/sbin", "no-such-tool", nil, "looked in /bin, /sbin", ""},
		{"relative", "bin:", "no-such-tool", nil, "looked in /tmp/bin, /tmp", ""},
		{"many", strings.Join(many, ":"), "no-such-tool", nil, " and more", ""},
		{"long", "/bin:" + long, "no-such-tool", nil, "looked in /bin and more", long},
		{"by-path", "/bin", "/no/such", []string{"/opt/a/bin"}, "/no/such: no such file", "looked in"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := open(t, setup{cgroups: true, hidden: tt.hidden})
			e := w.run("c", &guestv1.Command{Argv: []string{tt.program}, Cwd: "/tmp", Env: map[string]string{"PATH": tt.path}}).exit
			if e.GetCode() != 127 || !strings.Contains(e.GetError(), tt.want) || tt.not != "" && strings.Contains(e.GetError(), tt.not) {
				t.Errorf("exit %v, want %q", e, tt.want)
			}
		})
	}
}

// Commands run as whom they should, unless this binary was weakened.
func TestUserIsTheOneAskedFor(t *testing.T) {
	want := "1000\n"
	if weak.On(weak.CommandsAsRoot) {
		want = "0\n"
	}
	w := open(t, setup{cgroups: true, deny: true})
	if got := w.run("c", sh("id -u")).stdout.String(); got != want {
		t.Errorf("uid %q, want %q", got, want)
	}
}
