package boot_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/boot"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// The helper is this binary too.
func TestMain(m *testing.M) {
	role.Become(boot.Roles(nil))
	os.Exit(m.Run())
}

// unmounter is the command of the helper by which gVisor gives up its /proc,
// with a pipe that nobody writes to.
func unmounter(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { null.Close() })
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	cmd.ExtraFiles = []*os.File{null}
	return cmd
}

// TestUnmounterIsEarly: the helper is done before gVisor's packages are
// initialized, and another command line is left to gVisor.
func TestUnmounterIsEarly(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []string
		early bool
	}{
		{"the helper", []string{"umount", "--sync-fd=3", "/proc"}, true},
		{"another directory", []string{"umount", "--sync-fd=3", "/nothing"}, false},
		{"another descriptor", []string{"umount", "--sync-fd=0", "/proc"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := unmounter(t, tt.args...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 128 {
				t.Errorf("it ended with %v, want status 128", err)
			}
			if early := !strings.Contains(errs.String(), "init gvisor.dev/gvisor/pkg/sentry/"); early != tt.early {
				t.Errorf("before gVisor's packages: %v, want %v\n%.2000s", early, tt.early, errs.String())
			}
		})
	}
}

// BenchmarkUnmounter is what each of a start's two costs, from its start to
// its end.
func BenchmarkUnmounter(b *testing.B) {
	var cpu time.Duration
	for b.Loop() {
		cmd := unmounter(b, "umount", "--sync-fd=3", "/proc")
		cmd.Env = []string{}
		_ = cmd.Run() // nothing comes to its pipe, so it fails
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
}
