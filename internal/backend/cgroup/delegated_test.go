package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// delegated is an unprivileged process in a subtree that was given to it.
func delegated() {
	if err := useDelegated(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func useDelegated() error {
	h, err := cgroup.Find("/", "user")
	if err != nil {
		return err
	}
	defer h.Close()
	for _, c := range h.Controllers() {
		if c.Usable && c.Version == 1 {
			return fmt.Errorf("%s is usable to an unprivileged user: %+v", c.Name, c)
		}
	}
	g, err := h.Create("box", cgroup.Limits{})
	if err != nil {
		return err
	}
	if err := partsOfOneself(h, g); err != nil {
		return err
	}
	sh := exec.Command("sh", "-c", "read x; sleep 1000 & sleep 1000 & wait")
	in, err := sh.StdinPipe()
	if err != nil {
		return err
	}
	if err := sh.Start(); err != nil {
		return err
	}
	defer func() { _ = sh.Wait() }()
	if err := g.Enter(sh.Process.Pid); err != nil {
		return errors.Join(err, sh.Process.Kill())
	}
	in.Close() // only now does it fork
	fmt.Println(strings.Join(g.ProcsFiles(), " "))
	ctx := context.Background()
	return errors.Join(g.Kill(ctx), g.Remove(ctx), h.Prune())
}

// partsOfOneself makes a part for commands that the caller keeps, and fails to
// make one for somebody else.
func partsOfOneself(h *cgroup.Host, g *cgroup.Group) error {
	c, err := g.Commands(cgroup.Limits{}, os.Geteuid(), os.Getegid())
	if err == nil {
		err = c.Finish()
	}
	if err == nil {
		err = os.Mkdir(c.Root+"/commands/1", 0o755)
	}
	if err != nil {
		return err
	}
	other, err := h.Create("other", cgroup.Limits{})
	if err != nil {
		return err
	}
	_, err = other.Commands(cgroup.Limits{}, os.Geteuid()+1, os.Getegid())
	if sandbox.KindOf(err) != sandbox.Unsupported {
		return fmt.Errorf("given to somebody else: %w", err)
	}
	return other.Remove(context.Background())
}

func TestDelegatedSubtreeOnThisKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to delegate")
	}
	tree := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(tree + "/cgroup.procs"); err != nil {
		tree = "/sys/fs/cgroup"
	}
	dir := filepath.Join(tree, fmt.Sprintf("carboy-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err)
	}
	defer func() {
		var err error
		patience.Until(20*time.Second, func() bool { // the last process is on its way out
			err = os.Remove(dir)
			return !errors.Is(err, syscall.EBUSY)
		})
		if err != nil {
			t.Error(err)
		}
	}()
	self := copySelf(t)
	for _, given := range []bool{false, true} {
		t.Run(map[bool]string{true: "given", false: "not-given"}[given], func(t *testing.T) {
			for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
				if given {
					if err := os.Chown(filepath.Join(dir, f), 65534, 65534); err != nil {
						t.Skip(err)
					}
				}
			}
			out, err := runDelegated(t, self, dir)
			if !given {
				if err == nil || !strings.Contains(out, "delegated") && !strings.Contains(out, "may not") {
					t.Errorf("out = %q, %v; want a refusal", out, err)
				}
				return
			}
			if err != nil || !strings.Contains(out, dir+"/carboy/user/box") {
				t.Errorf("out = %q, %v", out, err)
			}
		})
	}
}

// copySelf puts the test binary where an unprivileged user can execute it.
func copySelf(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(dir, "self")
	if err := os.WriteFile(p, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func runDelegated(t *testing.T, self, dir string) (string, error) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := exec.Command(self)
	c.Dir = "/"
	c.Env = append(os.Environ(), helper+"=delegated")
	c.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(f.Fd()),
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
	}
	out, err := c.CombinedOutput()
	return string(out), err
}
