package egress

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// inWorld marks the test's process that has a network of its own.
const inWorld = "CARBOY_TEST_WORLD"

// fileTry in a gate's directory has the gate of these tests try things, before
// it is confined and after.
const fileTry = "try"

// TestMain is a gate where it is called as one. Otherwise it moves to a
// network namespace of its own, with public addresses that lead nowhere else,
// and a mount namespace, so that the gates that tests start are there too.
func TestMain(m *testing.M) {
	if Roles()[os.Args[0]] != nil {
		if len(os.Args) > 1 {
			if _, err := os.Stat(filepath.Join(os.Args[1], fileTry)); err == nil {
				go tryOut(tryOpen())
			}
		}
		role.Become(Roles())
	}
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(inWorld) != "" {
		if err := makeWorld(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inWorld+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func tryOpen() error {
	f, err := os.Open("/proc/self/status")
	if err == nil {
		f.Close()
	}
	return err
}

// tryOut says, once this process has given up its rights, what it could do
// before and what it can now.
func tryOut(before error) {
	for { // until the filter, the last of all, is there
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			break
		}
		_ = unix.Close(fd)
		runtime.Gosched()
	}
	_, exec := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	_, dir := os.ReadDir("/")
	_, unixSocket := net.Dial("unix", "/run/x.sock")
	fmt.Fprintf(os.Stderr, "tried: before %v; open %v; exec %v; readdir %v; kill %v; unix %v;\n",
		before, tryOpen(), exec, dir, syscall.Kill(1, 0), unixSocket)
}

// Addresses of the world that these tests are in.
const (
	worldA = "93.184.216.34"
	worldB = "93.184.216.35"
)

func makeWorld() error {
	// As the daemon does: what this process inherited is not for its gates.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, a := range []string{worldA, worldB} {
		addr, err := netlink.ParseAddr(a + "/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	return nil
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: links are made")
	}
}

// until waits for a fact that nobody announces.
func until(t testing.TB, what string, fact func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience.For(20 * time.Second))
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within 20 s", what)
		case <-tick.C:
		}
	}
}

// echoAt serves an address of the world: it sends back what comes.
func echoAt(t testing.TB, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

// tcpTo is a policy for one destination.
func tcpTo(addr string, port int) *policy.Policy {
	return &policy.Policy{Rules: []policy.Rule{{
		ID: "echo", Addresses: []string{addr}, Ports: []string{strconv.Itoa(port)}, Protocol: policy.ProtocolTCP,
	}}}
}
