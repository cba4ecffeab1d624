package skill_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// stopAt is the step at which the child of TestKilled stops, to be killed.
const stopAt = "CARBOY_TEST_SKILL_STOP_AT"

// TestKilled kills a process with SIGKILL in the middle of a change, and
// looks at what the next one finds.
func TestKilled(t *testing.T) {
	for name, tt := range map[string]struct {
		step, change string
		want         string // of the names in the store
	}{
		"before-the-first-move":  {"journal", "install", "old"},
		"after-the-first-move":   {"moved repo-alpha-upload", "install", "old"},
		"after-the-last-move":    {"moved repo-beta-upload", "install", "old"},
		"while-a-file-is-new":    {"wrote SKILL.md", "update", "old"},
		"while-a-skill-is-new":   {"journal", "create", "old"},
		"never":                  {"", "install", "beta alpha old"},
		"while-it-is-taken-back": {"taken", "take", "old"},
		"while-one-is-removed":   {"gone", "delete", "old"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "skills")
			create(t, openAt(t, root), "old", "as it was")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
			cmd.Env = append(os.Environ(), stopAt+"="+tt.step, "CARBOY_TEST_SKILL_ROOT="+root, "CARBOY_TEST_SKILL_CHANGE="+tt.change,
				"TMPDIR="+t.TempDir()) // what it is killed over is removed with the test
			out := must2(cmd.StdoutPipe())
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stopped := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "stopped") {
					stopped = true
					_ = cmd.Process.Kill()
				}
			}
			_ = cmd.Wait()
			if stopped != (tt.step != "") {
				t.Fatalf("it stopped: %v", stopped)
			}
			s := openAt(t, root)
			list := must2(s.List(t.Context()))
			got := map[string]bool{}
			for _, k := range list {
				got[k.Name] = true
			}
			for _, name := range strings.Fields(tt.want) {
				if !got[name] {
					t.Errorf("%s is not there", name)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("left over: %v", got)
			}
			if k := must2(s.Get(t.Context(), "old")); k.Instructions != "as it was" {
				t.Errorf("got %q", k.Instructions)
			}
			if left := must2(os.ReadDir(filepath.Join(root, ".carboy"))); len(left) != 1 { // the lock
				t.Errorf("something of the change stayed: %v", left)
			}
			if tt.change == "install" && tt.step != "" { // it can be done again
				must2(s.InstallZip(t.Context(), nestedZip(t), with("alpha", "beta")))
			}
		})
	}
}

// TestChild is the process that is killed.
func TestChild(t *testing.T) {
	step, stops := os.LookupEnv(stopAt)
	if !stops {
		t.Skip("it is for TestKilled")
	}
	s := openAt(t, os.Getenv("CARBOY_TEST_SKILL_ROOT"))
	g, b := newGuest(t), &skill.Brought{}
	p := placed(t, s, must2(s.Get(t.Context(), "old")), "rw")
	bring(t, s, g, b, 1, p)
	write(t, g.at("old"), file{"SKILL.md", "---\nname: old\n---\nchanged"})
	if os.Getenv("CARBOY_TEST_SKILL_CHANGE") == "delete" {
		create(t, s, "second", "")
	}
	skill.OnStep(t, func(at string) {
		if at == step {
			fmt.Println("stopped")
			_ = unix.Pause()
		}
	})
	var err error
	switch os.Getenv("CARBOY_TEST_SKILL_CHANGE") {
	case "install":
		_, err = s.InstallZip(t.Context(), nestedZip(t), with("alpha", "beta"))
	case "update":
		_, err = s.Update(t.Context(), "old", sessions.SkillInput{Instructions: ptr("changed")})
	case "create":
		_, err = s.Create(t.Context(), sessions.SkillInput{Name: "new"}, nil)
	case "delete":
		_, err = s.Delete(t.Context(), "second")
	case "take":
		_, err = s.TakeBack(t.Context(), g, b, p)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAtOnce has many callers of one store, by two of its handles as two
// daemons have them.
func TestAtOnce(t *testing.T) {
	root := filepath.Join(t.TempDir(), "skills")
	stores := []*skill.Store{openAt(t, root), openAt(t, root)}
	ctx := context.WithoutCancel(t.Context())
	var made, installed [40]bool
	var all sync.WaitGroup
	for i := range made {
		s := stores[i%2]
		all.Go(func() {
			_, err := s.Create(ctx, sessions.SkillInput{Name: fmt.Sprintf("k%d", i/4)}, nil) // four want the same
			made[i] = err == nil
		})
		all.Go(func() {
			_, err := s.InstallZip(ctx, nestedZip(t), with("alpha", "beta"))
			installed[i] = err == nil
		})
		all.Go(func() {
			if _, err := s.List(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	count := func(done [40]bool) (n int) {
		for _, ok := range done {
			if ok {
				n++
			}
		}
		return n
	}
	if count(made) != 10 || count(installed) != 1 {
		t.Errorf("got %d made and %d installed, want 10 and 1", count(made), count(installed))
	}
	if got := len(must2(stores[0].List(ctx))); got != 12 {
		t.Errorf("got %d skills, want 12", got)
	}
}

// TestReadersSeeWholeFiles writes a file while it is read.
func TestReadersSeeWholeFiles(t *testing.T) {
	s := open(t)
	create(t, s, "k", "x")
	texts := [2]string{strings.Repeat("a", 100_000), strings.Repeat("b", 50_000)}
	put(t, s, "k", "f", texts[0])
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			if _, err := s.Write(context.WithoutCancel(t.Context()), "k", "f", texts[i%2]); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		if got := must2(s.Read(t.Context(), "k", "f")).Content; got != texts[0] && got != texts[1] {
			t.Fatalf("got %d bytes, which are neither", len(got))
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestBroughtAtOnce has several commands of one session bring and take back
// at the same time.
func TestBroughtAtOnce(t *testing.T) {
	s, g, b := open(t), newGuest(t), &skill.Brought{}
	p := placed(t, s, create(t, s, "k", "x"), "rw")
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := s.Bring(context.WithoutCancel(t.Context()), g, b, []skill.Placed{p}); err != nil {
				t.Error(err)
			}
			if _, err := s.TakeBack(context.WithoutCancel(t.Context()), g, b, p); err != nil {
				t.Error(err)
			}
			_ = b.Writable()
		})
	}
	all.Wait()
	if got := g.calls.Load(); got != 17 {
		t.Errorf("got %d calls of the guest, want 1 that brings and 16 that look", got)
	}
}
