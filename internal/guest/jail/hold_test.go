package jail_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// group makes a cgroup of this test's below a hierarchy's mount.
func group(t testing.TB, hierarchy string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(hierarchy, fmt.Sprintf("jail-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no such cgroups here:", err)
	}
	t.Cleanup(func() {
		tick, late := time.NewTicker(time.Millisecond), time.After(patience.For(30*time.Second))
		defer tick.Stop()
		for err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist); err = os.Remove(dir) {
			select {
			case <-tick.C:
			case <-late:
				tasks, _ := os.ReadFile(filepath.Join(dir, "tasks"))
				t.Errorf("%s is left, with %q", dir, tasks)
				return
			}
		}
	})
	return dir
}

// Commands are born in the version 1 cgroups of their thread; the agent stays
// out.
func TestTasks(t *testing.T) {
	var tasks, lines []string
	for _, name := range []string{"pids", "memory"} {
		dir := group(t, "/sys/fs/cgroup/"+name)
		tasks = append(tasks, filepath.Join(dir, "tasks"))
		lines = append(lines, ":"+name+":/"+filepath.Base(dir)+"\n")
	}
	inside := start(t, jail.Config{Tasks: tasks})
	outside := start(t, jail.Config{})
	for _, u := range []jail.User{nobody, {}} {
		got, other := sh(t, inside, u, "cat /proc/self/cgroup").out, sh(t, outside, u, "cat /proc/self/cgroup").out
		for _, line := range lines {
			if !strings.Contains(got, line) || strings.Contains(other, line) {
				t.Errorf("user %d: %q is not in\n%s or in\n%s", u.UID, line, got, other)
			}
		}
	}
	procs, err := os.ReadFile(filepath.Join(filepath.Dir(tasks[0]), "tasks"))
	if n := len(strings.Fields(string(procs))); err != nil || n > 2 {
		t.Errorf("%d threads are in the group, want two at most: %v", n, err)
	}
	if _, err := jail.Start(jail.Config{Tasks: []string{"/no/such/tasks"}, PIDNamespace: true}); err == nil {
		t.Error("a cgroup that can't be entered: no error")
	}
	// On the host's kernel, where that is among its groups is not told.
	strict := start(t, jail.Config{Tasks: tasks, Strict: true})
	if got := sh(t, strict, nobody, "cat /proc/self/cgroup").out; strings.Contains(got, filepath.Base(filepath.Dir(tasks[0]))) {
		t.Errorf("commands see the host's cgroups:\n%s", got)
	}
	strict.Close()
	inside.Close()
}

func TestOOMScore(t *testing.T) {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	const script = "cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj)"
	if got := sh(t, start(t, jail.Config{OOMScore: 321}), nobody, script).out; got != "321\n321\n" {
		t.Errorf("got %q", got)
	}
	if got := sh(t, start(t, jail.Config{}), nobody, script).out; got != string(own)+string(own) {
		t.Errorf("without: got %q, want the agent's %q", got, own)
	}
	if now, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil || string(now) != string(own) {
		t.Errorf("the agent's own is %q now, %v", now, err)
	}
	for _, score := range []int{-1, 1001} {
		if _, err := jail.Start(jail.Config{OOMScore: score, PIDNamespace: true}); err == nil {
			t.Errorf("score %d: no error", score)
		}
	}
}

// A command is in its cgroup when it runs its first instruction, strict or
// not.
func TestCgroup(t *testing.T) {
	dir := group(t, "/sys/fs/cgroup/unified")
	fd, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	for _, strict := range []bool{true, false} {
		j := start(t, jail.Config{Strict: strict, Hide: []string{hidden(t)}})
		for range 20 {
			r, err := run(t, j, jail.Command{Argv: []string{"cat", "/proc/self/cgroup"}, User: nobody, Cgroup: int(fd.Fd())})
			if err != nil {
				t.Fatal(err)
			}
			if want := "0::/" + filepath.Base(dir) + "\n"; !strings.HasSuffix(r.out, want) {
				t.Fatalf("strict %t: got %q, want %q at the end", strict, r.out, want)
			}
		}
		j.Close()
	}
	// One that somebody has removed is what is wrong, and not the command.
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for _, strict := range []bool{true, false} {
		j := start(t, jail.Config{Strict: strict, Hide: []string{hidden(t)}})
		if _, err := run(t, j, jail.Command{Argv: []string{"true"}, User: nobody, Cgroup: int(fd.Fd())}); err == nil || !strings.Contains(err.Error(), "was removed from outside") {
			t.Errorf("strict %t: in a group that was removed: %v", strict, err)
		}
		j.Close()
	}
	// What can't be done to a command is its end.
	j := start(t, jail.Config{Strict: true})
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := run(t, j, jail.Command{Argv: []string{"echo", "ran"}, User: nobody, Cgroup: int(null.Fd())}); err == nil {
		t.Error("a cgroup that is none: no error")
	}
	if got := sh(t, j, nobody, "exit 5").status.Code; got != 5 {
		t.Errorf("the next command: %d", got)
	}
}

// Signals and errors of a held command are those of any other.
func TestHeldStatus(t *testing.T) {
	j := start(t, jail.Config{OOMScore: 1, Strict: true})
	for script, want := range map[string]string{
		"exit 3": "exit status 3", "kill -9 $$": "signal: killed", "(sleep 0.05; kill -CONT $$) & kill -STOP $$; wait; exit 4": "exit status 4",
	} {
		if got := sh(t, j, nobody, script).status.String(); got != want {
			t.Errorf("%s: got %s, want %s", script, got, want)
		}
	}
	if _, err := run(t, j, jail.Command{Argv: []string{"/no/such"}, User: nobody}); err == nil {
		t.Error("no such program: no error")
	}
}

// A command and all that it starts have the limit before their first
// instruction, can't raise it, and leave the agent its own.
func TestFiles(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	dir := group(t, "/sys/fs/cgroup/unified")
	fd, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	root := jail.User{} // of no user namespace here: another's limit takes a right that root may lack
	const script = "exec 2>/dev/null; ulimit -Sn; ulimit -Hn; (ulimit -Hn); ulimit -n 65 && echo raised; ulimit -Hn 65 && echo raised; bash -c 'ulimit -Hn'"
	for _, c := range []jail.Config{{Files: 64}, {Files: 64, OOMScore: 321}, {Files: 64, Strict: true, Hide: []string{hidden(t)}}} {
		j := start(t, c)
		r, err := run(t, j, jail.Command{Argv: []string{"bash", "-c", script}, User: root, Cgroup: int(fd.Fd())})
		if err != nil {
			t.Fatal(err)
		}
		if r.out != "64\n64\n64\n64\n" {
			t.Errorf("%+v: got %q", c, r.out)
		}
		j.Close()
	}
	j := start(t, jail.Config{}) // the control
	if got := sh(t, j, root, "ulimit -Hn").out; got != fmt.Sprintln(own.Max) {
		t.Errorf("without: got %q, want the agent's %d", got, own.Max)
	}
	j.Close()
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Max != own.Max {
		t.Errorf("the agent's own is %d now, want %d: %v", now.Max, own.Max, err)
	}
}
