package holders_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/carboy-sandbox/carboy/api/guest"
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
	got, err := holders.Find(proc, holders.Writing(dir))
	if err != nil {
		t.Fatal(err)
	}
	want := []holders.Holder{
		{PID: 10, Program: "name of 10", Path: dir + "/written", How: api.HowWrites},
		{PID: 12, Program: "name of 12", Path: dir + "/a mapped one", How: api.HowMaps},
		{PID: 15, Program: "name of 15", Path: dir + "/made (deleted)", How: api.HowWrites},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if _, err := holders.Find(filepath.Join(proc, "none"), holders.Writing(dir)); err == nil {
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
	found, err := holders.Find("/proc", holders.Writing(dir))
	if err != nil || len(found) != 1 || found[0].PID != pid || found[0].Path != file || found[0].How != api.HowWrites || !strings.Contains(found[0].Program, "sh") {
		t.Errorf("found %+v, %v; it is %d", found, err, pid)
	}
	if ended, err := holders.End(pid, holders.Writing(filepath.Join(dir, "elsewhere")), func(int) {}); ended || err != nil {
		t.Errorf("one that writes elsewhere: %t, %v", ended, err)
	}
	if ended, err := holders.End(pid, holders.Writing(dir), func(int) {}); !ended || err != nil {
		t.Errorf("one that writes: %t, %v", ended, err)
	}
	_ = in.Close()
	err = cmd.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v", err)
	}
	if ended, err := holders.End(pid, holders.Writing(dir), func(int) {}); ended || err != nil {
		t.Errorf("one that has ended: %t, %v", ended, err)
	}
}

// TestReaching: what a process has of a directory below a read-only mount, by which it could write, is found; what it has of that
// mount, or elsewhere, is not. Where the directory leads to others, files count for nothing.
func TestReaching(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for what, tt := range map[string]struct {
		script string
		how    api.How
		leads  api.How
	}{
		"works-there":   {`cd src; cover`, api.HowWorksIn, api.HowWorksIn},
		"reads":         {`exec 7<src/f; cover`, api.HowReaches, ""},
		"writes":        {`exec 7>>src/f; cover`, api.HowReaches, ""},
		"directory":     {`exec 7<src; cover`, api.HowReaches, api.HowReaches},
		"executes":      {`cp "$(command -v sleep)" src/s; src/s 100 & while ! readlink /proc/$!/exe | grep -q /src/s; do :; done; cover`, "", ""},
		"reads-covered": {`cover; exec 7<src/f; cd src`, "", ""},
		"deleted":       {`exec 7>src/f; rm src/f; cover`, "", ""},
		"elsewhere":     {`cd other; exec 7>f; cd ..; cover`, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("unshare", "--mount", "sh", "-c", `cd "$1"; mkdir src other; echo >src/f
				cover() { mount --bind "$1/src" "$1/src" && mount -o remount,bind,ro "$1/src"; }
				eval "$2"; echo done; read _; kill $! 2>/dev/null`, "sh", dir, strings.ReplaceAll(tt.script, "cover", `cover "$1"`))
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = in.Close(); _ = cmd.Wait() }()
			if b := make([]byte, 5); true {
				if _, err := io.ReadFull(out, b); err != nil || string(b) != "done\n" {
					t.Fatalf("it said %q, %v", b, err)
				}
			}
			src := []string{dir + "/src"}
			for _, look := range []struct {
				search holders.Search
				how    api.How
			}{{holders.Reaching(src), tt.how}, {holders.Leading(src), tt.leads}, {holders.Leading(nil), ""}, {holders.Either(holders.Leading(src), holders.Reaching(src)), tt.how}} {
				found, err := holders.Find("/proc", look.search)
				if err != nil {
					t.Fatal(err)
				}
				found = slices.DeleteFunc(found, func(h holders.Holder) bool { return h.How == api.HowPasses }) // this machine's own
				if look.how == "" && len(found) > 0 || look.how != "" && (len(found) != 1 || found[0].PID != cmd.Process.Pid || found[0].How != look.how) {
					t.Errorf("found %+v; it is %d, want %q", found, cmd.Process.Pid, look.how)
				}
			}
		})
	}
}

// TestLinked: a file with a name outside is found, whatever else it is called inside.
func TestLinked(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"src/deep", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"src/alone", "src/twice", "src/out", "other/out"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"src/twice": "src/deep/twice", "src/out": "other/link", "other/out": "other/twice"} {
		if err := os.Link(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := holders.Linked([]string{filepath.Join(dir, "src")})
	if d := cmp.Diff([]holders.Holder{{Path: filepath.Join(dir, "src/out"), How: api.HowLinked}}, got); err != nil || d != "" {
		t.Errorf("%v\n-want +got\n%s", err, d)
	}
}
