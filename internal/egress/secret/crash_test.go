package secret_test

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
)

// What tells the test's own binary to be killed, and where.
const (
	crashDir  = "CARBOY_TEST_CRASH_DIR"
	crashStep = "CARBOY_TEST_CRASH_STEP"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		crash(dir, os.Getenv(crashStep))
	}
	os.Exit(m.Run())
}

// crash puts, rotates and removes, and is killed at the step.
func crash(dir, at string) {
	kill := func(step string) {
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		}
	}
	s, err := secret.OpenStepped(secret.Options{Dir: filepath.Join(dir, "secrets"), KeyFile: filepath.Join(dir, "config", "key")}, kill)
	if err != nil {
		os.Exit(3)
	}
	src := secret.Source{Value: secret.NewValue([]byte(value))}
	ctx := context.Background()
	if _, err = s.Put(ctx, "uid:1", "NEW", src); err == nil {
		if _, err = s.Rotate(ctx, "uid:1", "OLD", &src); err == nil {
			err = s.Remove(ctx, "uid:1", "GONE", false)
		}
	}
	if err != nil {
		os.Exit(4)
	}
	os.Exit(0)
}

// TestKilledBetweenSteps kills a process at each step of its writes: what was
// there is there, whole, before or after the write, and nothing is left over.
func TestKilledBetweenSteps(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{true, false} {
		for _, step := range []string{"key-written", "key-named", "created", "written", "named", "checked", "removed"} {
			name := step
			if fresh {
				name += "-fresh"
			} else if strings.HasPrefix(step, "key-") || step == "checked" {
				continue
			}
			if fresh && step == "removed" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				o := secret.Options{Dir: filepath.Join(dir, "secrets"), KeyFile: filepath.Join(dir, "config", "key")}
				if !fresh {
					s := mustOpen(t, o)
					mustPut(t, s, "uid:1", "OLD", text(value+"-old"))
					mustPut(t, s, "uid:1", "GONE", text(value+"-gone"))
					s.Close()
				}
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), crashDir+"="+dir, crashStep+"="+step)
				if err := cmd.Run(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("the process ended with %v", err)
				}
				afterCrash(t, o, fresh)
			})
		}
	}
}

func afterCrash(t *testing.T, o secret.Options, fresh bool) {
	t.Helper()
	s := mustOpen(t, o)
	for name, allowed := range map[string][]string{
		"NEW": {"", value}, "OLD": {value + "-old", value}, "GONE": {value + "-gone", ""},
	} {
		if fresh && name != "NEW" {
			continue
		}
		m, err := s.Value(t.Context(), "uid:1", "", name)
		got := ""
		if err == nil {
			got = m.Value.Reveal()
		}
		if got != allowed[0] && got != allowed[1] {
			t.Errorf("%s is %q after the crash (%v)", name, got, err)
		}
	}
	mustPut(t, s, "uid:1", "NEXT", text(value))
	wantValue(t, s, "uid:1", "", "NEXT", value)
	for _, dir := range []string{o.Dir, filepath.Dir(o.KeyFile)} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if strings.Contains(path, ".new-") {
				t.Errorf("%s is left over", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
