package bench

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func testWorld(t *testing.T) *world {
	t.Helper()
	w, err := newWorld(t.TempDir(), "/bin/false", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close(context.Background()) })
	return w
}

func TestUnwind(t *testing.T) {
	w := testWorld(t)
	var got []string
	note := func(s string, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			got = append(got, s)
			return errors.Join(err, ctx.Err())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.later("a", note("a", nil))
	mark := w.mark()
	w.later("b", note("b", errors.New("stuck")))
	w.later("c", note("c", nil))
	cancel() // what was interrupted is taken away all the same
	w.unwind(ctx, mark)
	if diff := cmp.Diff([]string{"c", "b"}, got); diff != "" {
		t.Error(diff)
	}
	left := w.close(ctx)
	if diff := cmp.Diff([]string{"b: stuck"}, left); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(w.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

func TestRunCommand(t *testing.T) {
	w := testWorld(t)
	o, err := w.run(t.Context(), command{argv: []string{"/bin/sh", "-c", "echo one; echo $X"}, env: []string{"X=two"}})
	if err != nil || string(o.out) != "one\ntwo\n" || o.first <= 0 || o.whole < o.first {
		t.Errorf("%+v, %v", o, err)
	}
	tests := []struct {
		name, script, want string
	}{
		{"stderr", "echo why >&2; exit 3", "exit status 3: why"},
		{"stdout", "echo there; exit 3", "exit status 3: there"},
		{"silent", "exit 3", "exit status 3"},
	}
	for _, tt := range tests {
		for _, detaches := range []bool{false, true} {
			_, err := w.run(t.Context(), command{argv: []string{"/bin/sh", "-c", tt.script}, detaches: detaches})
			want := tt.want
			if detaches && tt.name == "stdout" {
				want = "exit status 3"
			}
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", tt.name, err, want)
			}
		}
	}
}

// TestLeftoversAreEnded holds that a process which lost its parent is found,
// ended and told of.
func TestLeftoversAreEnded(t *testing.T) {
	w := testWorld(t)
	before, err := readProcesses()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.run(t.Context(), command{argv: []string{"/bin/sh", "-c", "sleep 1000 &"}, detaches: true}); err != nil {
		t.Fatal(err)
	}
	after, err := readProcesses()
	if err != nil {
		t.Fatal(err)
	}
	own := pidsOf(below(after, os.Getpid()), pidsOf(below(before, os.Getpid()))...)
	if len(own) != 1 {
		t.Fatalf("processes %v", own)
	}
	left := w.close(t.Context())
	if len(left) != 1 || !strings.HasPrefix(left[0], "processes: had to be killed") {
		t.Errorf("left: %q", left)
	}
	if again, err := readProcesses(); err != nil || len(pidsOf(below(again, own[0]))) != 0 {
		t.Errorf("it is still there (%v)", err)
	}
}

func TestTailIsBounded(t *testing.T) {
	var x tail
	for range 3 {
		if n, err := x.Write(make([]byte, maxStderr)); n != maxStderr || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(x.b) != maxStderr {
		t.Errorf("%d bytes", len(x.b))
	}
	if got := (&tail{b: []byte(" a \n b\n")}).String(); got != ": a b" {
		t.Errorf("%q", got)
	}
}

func TestMakeRoot(t *testing.T) {
	host := t.TempDir()
	if err := os.Symlink("usr/bin", filepath.Join(host, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(host, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := makeRoot(filepath.Join(t.TempDir(), "root"), host)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/usr", "/lib"}, r.binds); diff != "" {
		t.Error(diff)
	}
	archive, err := r.archive()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(archive); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name == "bin" && h.Linkname != "usr/bin" {
			t.Errorf("bin leads to %q", h.Linkname)
		}
	}
	for _, want := range []string{"bin", "lib/", "usr/", "workspace/", "etc/passwd"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in %q", want, names)
		}
	}
}

func TestChoose(t *testing.T) {
	tests := []struct {
		name string
		only []string
		want string // groups and how many cases they have
		bad  bool
	}{
		{"group", []string{"exec"}, "exec", false},
		{"case", []string{"carboy-gvisor-one"}, "burst", false},
		{"one-of-a-group", []string{"start/native", "git-status/native"}, "start git-status", false},
		{"unknown", []string{"start", "strat"}, "", true},
		{"wrong-group", []string{"exec/bwrap"}, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := testWorld(t).plan()
			err := p.choose(tt.only)
			if (sandbox.KindOf(err) == sandbox.Invalid) != tt.bad {
				t.Fatalf("error %v", err)
			}
			var got []string
			for _, g := range p.groups {
				got = append(got, g.name)
			}
			if !tt.bad && strings.Join(got, " ") != tt.want {
				t.Errorf("groups %q", got)
			}
		})
	}
}

// TestPlan holds that each case has an owner, a name of its own in its group,
// and is compared with what there is.
func TestPlan(t *testing.T) {
	p := testWorld(t).plan()
	for _, g := range p.groups {
		var names []string
		for _, c := range g.cases {
			if slices.Contains(names, c.name) {
				t.Errorf("%s has %s twice", g.name, c.name)
			}
			names = append(names, c.name)
			if p.owner[c.name] == "" {
				t.Errorf("%s/%s is nobody's", g.name, c.name)
			}
		}
		for _, c := range g.cases {
			for _, to := range c.against {
				if !slices.Contains(names, to) {
					t.Errorf("%s/%s is compared with %s, which is not there", g.name, c.name, to)
				}
			}
		}
	}
}

// TestRun goes through a whole run with the one peer that is everywhere.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	rep, err := Run(t.Context(), Options{Carboy: "/bin/false", Dir: dir, Rounds: 2, Quick: true, Only: []string{"exec/native", "small-files/native"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Groups) != 2 || len(rep.Leftover) != 0 {
		t.Fatalf("%+v", rep)
	}
	for _, g := range rep.Groups {
		for _, c := range g.Cases {
			for _, m := range c.Metrics {
				if m.N != 2 || c.Failures != 0 {
					t.Errorf("%s/%s %s: %+v", g.Name, c.Name, m.Name, c)
				}
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
	for name, o := range map[string]Options{
		"rounds": {Dir: dir, Rounds: -1},
		"only":   {Dir: dir, Only: []string{"nothing"}},
	} {
		if _, err := Run(t.Context(), o); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
