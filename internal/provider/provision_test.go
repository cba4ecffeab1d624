package provider_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// guest is a sandbox that remembers what was done in it.
type guest struct {
	did    []string
	files  map[string]string
	answer func(argv []string) (*provider.Result, error) // nil, or one that knows nothing: success
}

func (g *guest) Run(_ context.Context, argv []string, _ int) (*provider.Result, error) {
	g.did = append(g.did, strings.Join(argv, " "))
	if g.answer != nil {
		if r, err := g.answer(argv); r != nil || err != nil {
			return r, err
		}
	}
	if isRead(argv) {
		return &provider.Result{Stdout: []byte("none\n")}, nil
	}
	return &provider.Result{}, nil
}

// isRead reports whether a command is the one that reads a file.
func isRead(argv []string) bool { return len(argv) > 2 && strings.Contains(argv[2], "head -c") }

func (g *guest) Write(_ context.Context, e provider.Entry) error {
	g.did = append(g.did, "write "+e.Path)
	if g.files == nil {
		g.files = map[string]string{}
	}
	g.files[e.Path] = string(e.Content)
	return nil
}

var plan = &provider.Plan{
	Dirs:    []provider.PlannedDir{{Path: "/home/user/.x", Mode: 0o700, Error: "x's home can't be made"}},
	PreCopy: []provider.PlannedCommand{{Argv: []string{"find", "/home/user/.x"}, Error: "old files can't be removed"}},
	Files:   []provider.PlannedFile{{Path: "/home/user/.x/a.json", Mode: 0o600, Content: `{"a":1}`, Merge: true, Error: "a can't be written"}},
	Verify:  []provider.PlannedCommand{{Argv: []string{"x", "status"}, Error: "x does not take its credentials"}},
}

func TestApply(t *testing.T) {
	g := &guest{answer: func(argv []string) (*provider.Result, error) {
		if isRead(argv) {
			return &provider.Result{Stdout: []byte("none\n" + `{"b":2}`)}, nil
		}
		return nil, nil
	}}
	pr := &provider.Provisioner{Guest: g}
	if err := pr.Apply(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"sh -c mkdir", "find /home/user/.x", "sh -c did=", "write /home/user/.x/a.json", "x status"} {
		if i >= len(g.did) || !strings.HasPrefix(g.did[i], want) {
			t.Fatalf("step %d of %q, want %s", i, g.did, want)
		}
	}
	if got := g.files["/home/user/.x/a.json"]; !strings.Contains(got, `"a":1`) || !strings.Contains(got, `"b":2`) {
		t.Errorf("what was there is gone: %s", got)
	}
}

// TestApplyFails says for each step what was meant to be done, and what was said inside,
// in which nothing can harm a terminal.
func TestApplyFails(t *testing.T) {
	for _, tt := range []struct{ step, want string }{
		{"sh", "x's home can't be made: exit code 3: no \\x1b[31m room"},
		{"find", "old files can't be removed: exit code 3: no \\x1b[31m room"},
		{"x", "x does not take its credentials: exit code 3: no \\x1b[31m room"},
	} {
		g := &guest{answer: func(argv []string) (*provider.Result, error) {
			if argv[0] == tt.step {
				return &provider.Result{Code: 3, Stderr: []byte("first\nno \x1b[31m room\n")}, nil
			}
			return nil, nil
		}}
		err := (&provider.Provisioner{Guest: g}).Apply(t.Context(), plan)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.step, err, tt.want)
		}
	}
}

// TestTriedAgain tries a step once more that was lost, and no other.
func TestTriedAgain(t *testing.T) {
	lost := &provider.Result{Code: 137, Lost: true}
	for _, tt := range []struct {
		name    string
		answers []*provider.Result
		runs    int
		fails   bool
	}{
		{"lost-once", []*provider.Result{lost, {}}, 2, false},
		{"lost-twice", []*provider.Result{lost, lost, {}}, 2, true},
		{"failed", []*provider.Result{{Code: 1}, {}}, 1, true},
		{"out-of-memory", []*provider.Result{{Code: 137}, {}}, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := 0
			g := &guest{answer: func([]string) (*provider.Result, error) {
				runs++
				return tt.answers[runs-1], nil
			}}
			paused := 0
			pr := &provider.Provisioner{Guest: g, Pause: func(context.Context) error { paused++; return nil }}
			err := pr.Apply(t.Context(), &provider.Plan{Verify: plan.Verify})
			if (err != nil) != tt.fails || runs != tt.runs || paused != tt.runs-1 {
				t.Errorf("%d runs, error %v; want %d, an error %t", runs, err, tt.runs, tt.fails)
			}
		})
	}
}

// TestPlaceholders takes nothing for one that could be something else.
func TestPlaceholders(t *testing.T) {
	good := "carboy_secret_key_0123456789abcdef0123456789abcdef"
	for _, tt := range []struct {
		name, environ string
		ok            bool
	}{
		{"there", "A=b\x00KEY=" + good + "\x00", true},
		{"missing", "A=b\x00", false},
		{"a-real-one", "KEY=sk-ant-1234567890\x00", false},
		{"more-in-it", "KEY=" + good + "\", \"x\": \"\x00", false},
	} {
		g := &guest{answer: func([]string) (*provider.Result, error) { return &provider.Result{Stdout: []byte(tt.environ)}, nil }}
		got, err := (&provider.Provisioner{Guest: g}).Placeholders(t.Context(), []string{"KEY"})
		if (err == nil) != tt.ok || tt.ok && got["KEY"] != good {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

// TestErrorsKeepTheirKind passes on what the sandbox's daemon said of a step.
func TestErrorsKeepTheirKind(t *testing.T) {
	g := &guest{answer: func([]string) (*provider.Result, error) {
		return nil, sandbox.Errorf(sandbox.Exhausted, "the disk is full").WithHint("free some")
	}}
	err := (&provider.Provisioner{Guest: g}).Apply(t.Context(), plan)
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.Exhausted || e.Hint != "free some" || e.Error() != "x's home can't be made: the disk is full" {
		t.Errorf("%+v", err)
	}
	if len(g.did) != 1 || !slices.ContainsFunc(g.did, func(s string) bool { return strings.HasPrefix(s, "sh ") }) {
		t.Errorf("it went on: %q", g.did)
	}
}

// shellGuest runs what is to be run on this machine.
type shellGuest struct{}

func (shellGuest) Run(ctx context.Context, argv []string, _ int) (*provider.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.For(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return &provider.Result{Code: cmd.ProcessState.ExitCode(), Stdout: out, Stderr: said.Bytes()}, nil
}

func (shellGuest) Write(_ context.Context, e provider.Entry) error {
	return errors.Join(os.WriteFile(e.Path+".new", e.Content, 0o600), os.Rename(e.Path+".new", e.Path))
}

// TestFilesPlaces has at a file's place whatever an agent may have left there: the file is
// written, what was there is beside it, and no link is followed.
func TestFilesPlaces(t *testing.T) {
	const have = `{"b":2}`
	for _, tt := range []struct {
		name  string
		leave func(dir, file string) error
		moved bool
		keeps bool // of a file's content, what is merged into
	}{
		{"nothing", func(string, string) error { return nil }, false, false},
		{"a file", func(_, file string) error { return os.WriteFile(file, []byte(have), 0o600) }, false, true},
		{"a directory", func(_, file string) error { return os.MkdirAll(file+"/x/y", 0o700) }, true, false},
		{"a directory, again", func(_, file string) error {
			return errors.Join(os.MkdirAll(file+"/x", 0o700), os.MkdirAll(file+".was-1/z", 0o700), os.Symlink("nowhere", file+".was-2"))
		}, true, false},
		{"a pipe", func(_, file string) error { return syscall.Mkfifo(file, 0o600) }, true, false},
		{"a link", func(dir, file string) error {
			return errors.Join(os.WriteFile(dir+"/other", []byte(have), 0o600), os.Symlink("other", file))
		}, false, true},
		{"a link to a pipe", func(dir, file string) error {
			return errors.Join(syscall.Mkfifo(dir+"/other", 0o600), os.Symlink("other", file))
		}, false, false},
		{"a link to what never ends", func(_, file string) error { return os.Symlink("/dev/zero", file) }, false, false},
		{"a link to nothing", func(_, file string) error { return os.Symlink("nowhere", file) }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := dir + "/a b.json"
			if err := tt.leave(dir, file); err != nil {
				t.Fatal(err)
			}
			var mended []string
			pr := &provider.Provisioner{Guest: shellGuest{}, Mended: func(p string) { mended = append(mended, p) }}
			files := []provider.PlannedFile{{Path: dir + "/first", Error: "e"}, {Path: file, Content: `{"a":1}`, Merge: true, Error: "e"}}
			if err := pr.Apply(t.Context(), &provider.Plan{Files: files}); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), `"a"`) || strings.Contains(string(b), `"b"`) != tt.keeps {
				t.Errorf("it is %q, %v", b, err)
			}
			if tt.moved != slices.Equal(mended, []string{file}) || !tt.moved && len(mended) > 0 {
				t.Errorf("mended: %q", mended)
			}
			if tt.name == "a link" {
				if b, err := os.ReadFile(dir + "/other"); err != nil || string(b) != have {
					t.Errorf("what the link led to is %q, %v", b, err)
				}
			}
		})
	}
	dir := t.TempDir()
	for _, n := range "123456789" {
		if err := os.MkdirAll(dir+"/x.was-"+string(n), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/x", 0o700); err != nil {
		t.Fatal(err)
	}
	err := (&provider.Provisioner{Guest: shellGuest{}}).Apply(t.Context(), &provider.Plan{Files: []provider.PlannedFile{{Path: dir + "/x", Error: "e"}}})
	if err == nil || !strings.Contains(err.Error(), "more than enough was moved aside") {
		t.Errorf("the tenth: %v", err)
	}
}
