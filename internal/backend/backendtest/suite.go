package backendtest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// Options describe the wall under test.
type Options struct {
	// Open opens the wall over a state directory and a cache, and closes it
	// at the test's end. Several are opened over one state, and all share the
	// cache.
	Open func(t *testing.T, state, cache string) sandbox.Backend
	// Root says that commands may be root in the guest.
	Root bool
	// MemoryEndsInstance says that a command that takes more memory than the instance
	// has ends the whole instance; else it alone is killed.
	MemoryEndsInstance bool
	// HardLinks says that a file of several names is as on the host; else one of them can
	// fail to be linked once more, after others were renamed or deleted.
	HardLinks bool
	// Long says that what is tried at random is tried often.
	Long bool
}

// suite is one run of it.
type suite struct {
	Options
	cache string
}

// secretEnv is set in the environment of the process that opens the wall.
const (
	secretEnv = "CARBOY_CONFORMANCE_SECRET"
	secret    = "what-only-the-host-knows"
)

// Run tests the walls that o.Open returns.
func Run(t *testing.T, o Options) {
	t.Setenv(secretEnv, secret)
	s := &suite{Options: o, cache: filepath.Join(tempDir(t), "cache")}
	for _, part := range []struct {
		name string
		test func(*testing.T, *suite)
	}{
		{"lifecycle", testLifecycle},
		{"cancelled-start", testCancelledStart},
		{"ids", testIDs},
		{"adoption", testAdoption},
		{"end-reasons", testEndReasons},
		{"stop-and-start", testStopAndStart},
		{"spec", testSpec},
		{"check", testCheck},
		{"exec", testExec},
		{"exec-streams", testStreams},
		{"exec-signals", testSignals},
		{"exec-many", testMany},
		{"terminals", testTerminals},
		{"files", testFiles},
		{"sudo", testSudo},
		{"watches", testWatches},
		{"ports", testPorts},
		{"sockets", testSockets},
		{"limits", testLimits},
		{"resize", testResize},
		{"machine", testMachine},
		{"no-network", testNoNetwork},
		{"no-host", testNoHost},
		{"workspace", testWorkspace},
		{"volume-workspace", testVolumeWorkspace},
		{"lock", testLock},
		{"mount-points", testMountPoints},
		{"packages", testPackages},
		{"read-only-root", testReadOnlyRoot},
		{"git", testGit},
		{"changes", testChanges},
		{"renames", testRenames},
		{"whole", testWhole},
		{"model", testModel},
		{"forged-marks", testForgedMarks},
		{"snapshots", testSnapshots},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s) })
	}
}

// tempDir makes a directory that others than root can look into, and that is
// not below the test's name: names of instances are, and both are in paths.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-wall-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// world is a wall over a state of its own.
type world struct {
	sandbox.Backend
	s     *suite
	state string
}

// open opens the wall anew.
func (s *suite) open(t *testing.T) *world {
	t.Helper()
	return s.openAt(t, filepath.Join(tempDir(t), "state"))
}

func (s *suite) openAt(t *testing.T, state string) *world {
	t.Helper()
	return &world{Backend: s.Open(t, state, s.cache), s: s, state: state}
}

// record returns what a manager would hand to Start, changed by change.
func (w *world) record(change ...func(*sandbox.Sandbox)) *sandbox.Sandbox {
	sb := &sandbox.Sandbox{
		ID: newID(), Owner: ownOwner(), Backend: w.Name(),
		Spec: sandbox.Spec{
			Isolation: w.Name(), Image: sandbox.DefaultImage, User: sandbox.DefaultUser, Network: sandbox.DefaultNetwork,
			Workspace: sandbox.Workspace{Mode: sandbox.WorkspacePrivate},
			Limits:    sandbox.Limits{CPUs: 2, Memory: 512 << 20, PIDs: 512, Disk: 256 << 20, Inodes: 20_000},
		},
	}
	for _, c := range change {
		c(sb)
	}
	return sb
}

func newID() string { return "sb_" + strings.ToLower(rand.Text()[:16]) }

// begin starts an instance that goes with the test.
func (w *world) begin(t *testing.T, change ...func(*sandbox.Sandbox)) *instance {
	t.Helper()
	sb := w.record(change...)
	t.Cleanup(func() { w.mustRemove(t, sb.ID) })
	return w.restart(t, sb)
}

// restart starts sb, whose removal is somebody else's.
func (w *world) restart(t *testing.T, sb *sandbox.Sandbox) *instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(time.Minute))
	defer cancel()
	enforced, err := w.Start(ctx, sb)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	return newInstance(t, w, sb, enforced)
}

func (w *world) mustStop(t *testing.T, id string) []string {
	t.Helper()
	lost, err := w.Stop(context.WithoutCancel(t.Context()), id)
	if err != nil {
		t.Fatalf("Stop: %v", err)
	}
	return lost
}

func (w *world) mustRemove(t *testing.T, id string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if _, err := w.Stop(ctx, id); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := w.Remove(ctx, id); err != nil {
		t.Errorf("Remove: %v", err)
	}
	// The kernel takes a mount namespace apart after its last process.
	var left []string
	patience.Until(10*time.Second, func() bool {
		left = traces(id)
		return len(left) == 0
	})
	for _, l := range left {
		t.Errorf("left of a removed instance: %s", l)
	}
}

func wantKind(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	if err == nil || sandbox.KindOf(err) != want {
		t.Errorf("%s = %v (%s), want %s", what, err, sandbox.KindOf(err), want)
	}
}

// until waits for a fact of the outside world that nobody announces.
func until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	if !patience.Until(30*time.Second, fact) {
		t.Fatalf("waited for %v in vain: %s", patience.For(30*time.Second), what)
	}
}
