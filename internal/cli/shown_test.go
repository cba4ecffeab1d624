package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// shownJob makes a sandbox named job whose one change is to a, which reads
// print(1) for as many times as its changes are read, and evil() from then on.
func shownJob(t *testing.T, times int32) (d *fakeDaemon, dir string) {
	t.Helper()
	d, dir = startFake(t), t.TempDir()
	put := func(dir, text string) {
		if err := os.WriteFile(filepath.Join(dir, "a"), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	put(dir, "old()\n")
	run := onTerminal(t, d, nil, "run", "--workspace", dir, "--name", "job", "--", "sh", "-c", "echo 'print(1)' > a")
	if code, out := run.wait(); code != 0 {
		t.Fatalf("run: %d, %q", code, out)
	}
	var read atomic.Int32
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beforeChanges = func(dir string) {
		if read.Add(1) == times+1 {
			put(dir, "evil()\n")
		}
	}
	return d, dir
}

// TestApplyShowsWhatItWrites holds against a sandbox that changes a file while
// the user looks at it.
func TestApplyShowsWhatItWrites(t *testing.T) {
	d, dir := shownJob(t, 1)
	s := onTerminal(t, d, []string{"NO_COLOR=1"}, "apply", "-i", "job")
	s.expect("take it? ")
	s.send("d\n")
	seen := s.expect("take it? ")
	s.send("d\n") // the second look is the first one's
	again := s.expect("take it? ")
	s.send("y\n")
	if code, out := s.wait(); code != 0 {
		t.Fatalf("apply: %d, %q", code, out)
	}
	if !strings.Contains(seen, "-old()\r\n+print(1)\r\n") || strings.Contains(seen+again, "evil") {
		t.Errorf("shown: %q, then %q", seen, again)
	}
	if got := readFile(t, dir, "a"); got != "print(1)\n" {
		t.Errorf("written: %q", got)
	}
	// The control: who asks the sandbox again gets the other one.
	if _, out := onTerminal(t, d, nil, "diff", "job").wait(); !strings.Contains(out, "evil()") {
		t.Errorf("the sandbox has not changed: %q", out)
	}
}

// TestApplyAfterDiff holds that an apply says and asks where the sandbox
// changed since the last diff on the same terminal.
func TestApplyAfterDiff(t *testing.T) {
	tests := []struct {
		name   string
		times  int32 // how often the changes are read before they become evil
		script string
		send   string
		want   string // what a reads then
		says   string
		silent bool // about changes
	}{
		{"unchanged", 9, "carboy diff job && carboy apply job", "", "print(1)\n", "M  a", true},
		{"changed-no", 1, "carboy diff job && carboy apply job", "n\n", "old()\n", "left without a change", false},
		{"changed-enter", 1, "carboy diff job && carboy apply job", "\n", "old()\n", "hint: carboy diff job", false},
		{"changed-yes", 1, "carboy diff job && carboy apply job", "y\n", "evil()\n", "M  a", false},
		{"another-session", 1, "carboy diff job && setsid -w carboy apply job", "", "evil()\n", "M  a", true},
		{"no-terminal", 1, "carboy diff job && carboy apply job </dev/null", "", "evil()\n", "M  a", false},
		{"no-diff", 1, "carboy apply job", "", "print(1)\n", "M  a", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, dir := shownJob(t, tt.times)
			s := startOnTerminal(t, d, []string{"NO_COLOR=1"}, "sh", "-c", tt.script)
			seen := ""
			if tt.send != "" {
				seen = s.expect("take it all the same? [y,N] ")
				s.send(tt.send)
			}
			_, out := s.wait()
			seen += out
			if !strings.Contains(seen, tt.says) || strings.Contains(seen, "changed since carboy diff showed it less than a second ago: a") == tt.silent {
				t.Errorf("it said %q", seen)
			}
			if got := readFile(t, dir, "a"); got != tt.want {
				t.Errorf("written: %q, want %q", got, tt.want)
			}
		})
	}
}

// TestStateByLinks holds that what is remembered is neither read nor written
// by way of a link.
func TestStateByLinks(t *testing.T) {
	tests := []struct {
		name  string
		plant func(t *testing.T, state, outside string)
		says  string
	}{
		{"nothing", func(*testing.T, string, string) {}, ""},
		{"directory", func(t *testing.T, state, outside string) {
			must(t, os.MkdirAll(state, 0o700))
			must(t, os.Symlink(outside, filepath.Join(state, "shown")))
		}, "remember what was shown: "},
		{"directory-within", func(t *testing.T, state, _ string) {
			must(t, os.MkdirAll(filepath.Join(state, "other"), 0o700))
			must(t, os.Symlink("other", filepath.Join(state, "shown")))
		}, "remember what was shown: shown in "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, _ := shownJob(t, 9)
			state, outside := filepath.Join(t.TempDir(), "state"), t.TempDir()
			tt.plant(t, state, outside)
			code, out := onTerminal(t, d, []string{"CARBOY_STATE=" + state}, "diff", "job").wait()
			if (code == 0) != (tt.says == "") || !strings.Contains(out, tt.says) {
				t.Errorf("diff: %d, %q", code, out)
			}
			for _, dir := range []string{outside, filepath.Join(state, "other")} {
				if list, _ := os.ReadDir(dir); len(list) > 0 {
					t.Errorf("written by way of a link: %v", list)
				}
			}
			if tt.says == "" {
				checkPrivate(t, filepath.Join(state, "shown"))
			}
		})
	}
}

// checkPrivate checks that a directory has one file, which nobody else reads,
// and that a link in its place is not followed.
func checkPrivate(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v; want one file", list, err)
	}
	for _, name := range []string{dir, filepath.Join(dir, list[0].Name())} {
		fi, err := os.Lstat(name)
		must(t, err)
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v", name, fi.Mode())
		}
	}
}

// TestShownIsNoLink holds that a link in the place of the file is refused for
// reading and replaced by writing.
func TestShownIsNoLink(t *testing.T) {
	d, dir := shownJob(t, 9)
	target := filepath.Join(t.TempDir(), "target")
	must(t, os.WriteFile(target, []byte("{}"), 0o600))
	const script = `carboy diff job >/dev/null && f=$(echo "$CARBOY_STATE"/shown/*.json) && rm "$f" && ln -s "$TARGET" "$f" && carboy apply job; echo "code $?"; carboy diff job >/dev/null; ls -l "$f"`
	_, out := startOnTerminal(t, d, []string{"NO_COLOR=1", "TARGET=" + target}, "sh", "-c", script).wait()
	if !strings.Contains(out, "carboy: read what was shown before: ") || !strings.Contains(out, "code 125") {
		t.Errorf("apply: %q", out)
	}
	if got := readFile(t, filepath.Dir(target), "target"); got != "{}" {
		t.Errorf("target: %q", got)
	}
	if !strings.Contains(out, "-rw-------") {
		t.Errorf("the link is still there: %q", out)
	}
	if got := readFile(t, dir, "a"); got != "old()\n" {
		t.Errorf("written: %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
