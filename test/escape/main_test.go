package escape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/unpacked"
)

var (
	carboy  = os.Getenv("CARBOY_BIN")               // the binary that users get
	weakBin = os.Getenv("CARBOY_WEAK_BIN")          // the same, built with the tag weakened
	full    = os.Getenv("CARBOY_ESCAPE_FULL") != "" // every probe for every weakness
	host    *planted
	tools   string // the probe and its set-user-id twin
)

// walls are those to try.
func walls() []string {
	if w := os.Getenv("CARBOY_ESCAPE_WALLS"); w != "" {
		return strings.Split(w, ",")
	}
	return []string{facts.GVisor, facts.Process}
}

// init keeps the first thread for the main goroutine: what that starts dies
// with its thread, and others' end with tests that are locked to them.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) { os.Exit(run(m)) }

// session is set in a process that has a session keyring of its own.
const session = "CARBOY_ESCAPE_SESSION"

func run(m *testing.M) int {
	if os.Getenv(session) == "" {
		if err := enterSession(); err != nil {
			fmt.Fprintln(os.Stderr, "escape: a session keyring:", err)
			return 1
		}
	}
	dir, err := os.MkdirTemp("", "carboy-tools-*")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	tools = dir
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, "escape: build the probe:", err)
		return 1
	}
	host, err = plant()
	defer host.remove()
	if err != nil {
		fmt.Fprintln(os.Stderr, "escape: plant:", err)
		return 1
	}
	defer removeCarried()
	return m.Run()
}

// carried are the programs in each binary that was tried.
var carried sync.Map

func removeCarried() {
	carried.Range(func(_, p any) bool {
		if err := p.(*unpacked.Programs).Remove(); err != nil {
			fmt.Fprintln(os.Stderr, "escape:", err)
		}
		return true
	})
}

// enterSession runs this program again with a session keyring of its own,
// which every daemon that the tests start inherits. It returns on failure, or
// where the kernel has no keys.
func enterSession() error {
	runtime.LockOSThread() // a keyring belongs to a thread until it executes
	defer runtime.UnlockOSThread()
	if _, err := unix.KeyctlJoinSessionKeyring("carboy-escape"); err != nil {
		return os.Setenv(session, "without keys")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), session+"=entered"))
}

// build makes the probe, and a twin that runs as its owner.
func build(dir string) error {
	out := filepath.Join(dir, "probe")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, "./probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	twin := filepath.Join(dir, "set-user-id")
	if err := os.WriteFile(twin, b, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("tools\n"), 0o644); err != nil {
		return err
	}
	return os.Chmod(twin, 0o755|os.ModeSetuid)
}
