package holders_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/holders"
)

// A proc that was made up has processes that say anything of themselves.
func TestWriters(t *testing.T) {
	const dir = "/workspace"
	proc := t.TempDir()
	type descriptor struct{ path, info string }
	const reads, writes, pathOnly = "pos:\t0\nflags:\t0100000\n", "pos:\t0\nflags:\t0100002\nmnt_id:\t7\n", "flags:\t010000001\n"
	for pid, p := range map[string]struct {
		fds  []descriptor
		maps string
	}{
		"10": {fds: []descriptor{{dir + "/read", reads}, {dir + "/written", writes}}},
		"11": {fds: []descriptor{{dir + "/read", reads}, {"/workspaces/written", writes}, {"/tmp" + dir, writes}}},
		"12": {maps: "7f00-7f01 rw-p 00000000 08:01 12 /workspace/private\n7f01-7f02 r--s 00000000 08:01 12                         /workspace/a mapped one\n"},
		"13": {maps: "7f00-7f01 rw-s 00000000 08:01 12 /tmp/x\n7f00-7f01 rw-s 00000000 00:00 0\nnonsense\n\n"},
		"14": {fds: []descriptor{{dir, pathOnly}, {dir + "/x", "flags:\tnonsense\n"}, {dir + "/x", ""}}},
		"15": {fds: []descriptor{{dir + "/made (deleted)", writes}}},
	} {
		task := filepath.Join(proc, pid, "task", pid)
		for _, d := range []string{"fd", "fdinfo"} {
			if err := os.MkdirAll(filepath.Join(task, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write := func(path, text string) {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write(filepath.Join(proc, pid, "comm"), "name of "+pid+"\n")
		write(filepath.Join(proc, pid, "maps"), p.maps)
		for i, d := range p.fds {
			if err := os.Symlink(d.path, filepath.Join(task, "fd", strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
			write(filepath.Join(task, "fdinfo", strconv.Itoa(i)), d.info)
		}
	}
	if err := os.MkdirAll(filepath.Join(proc, "16"), 0o755); err != nil { // it has just ended
		t.Fatal(err)
	}
	got, err := holders.Writers(proc, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []holders.Holder{
		{PID: 10, Program: "name of 10", Path: dir + "/written"},
		{PID: 12, Program: "name of 12", Path: dir + "/a mapped one", Mapped: true},
		{PID: 15, Program: "name of 15", Path: dir + "/made (deleted)"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if _, err := holders.Writers(filepath.Join(proc, "none"), dir); err == nil {
		t.Error("no error where there is no /proc")
	}
}

// A real process is found and ended while it has a file open for writing, and left alone where it has none.
func TestEnd(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "held")
	cmd := exec.Command("sh", "-c", `exec 7>"$1"; echo open; read _`, "sh", file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	said := func(want string) {
		t.Helper()
		b := make([]byte, len(want))
		if n, err := out.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("it said %q, %v", b[:n], err)
		}
	}
	pid := cmd.Process.Pid
	said("open\n")
	found, err := holders.Writers("/proc", dir)
	if err != nil || len(found) != 1 || found[0].PID != pid || found[0].Path != file || found[0].Mapped || !strings.Contains(found[0].Program, "sh") {
		t.Errorf("found %+v, %v; it is %d", found, err, pid)
	}
	if ended, err := holders.End(pid, filepath.Join(dir, "elsewhere"), func(int) {}); ended || err != nil {
		t.Errorf("one that writes elsewhere: %t, %v", ended, err)
	}
	if ended, err := holders.End(pid, dir, func(int) {}); !ended || err != nil {
		t.Errorf("one that writes: %t, %v", ended, err)
	}
	_ = in.Close()
	err = cmd.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v", err)
	}
	if ended, err := holders.End(pid, dir, func(int) {}); ended || err != nil {
		t.Errorf("one that has ended: %t, %v", ended, err)
	}
}
