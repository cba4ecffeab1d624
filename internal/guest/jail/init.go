package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// InitName is the argv[0] by which a program is asked to be Init.
const InitName = "carboy-init"

// order is what the agent tells its init on standard input.
type order struct {
	Hide []string `json:"hide"`
	Proc bool     `json:"proc"` // mount a fresh /proc
}

// ready is the answer on standard output.
type ready struct {
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Init is pid 1 of the commands' namespaces: it arranges the mounts as it is
// told on standard input, answers on standard output, and then reaps orphans
// until it is killed. It returns only on failure, an exit code.
func Init() int {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE)

	warnings, err := arrange(os.Stdin)
	answer := ready{Warnings: warnings}
	if err != nil {
		answer.Error = err.Error()
	}
	if werr := json.NewEncoder(os.Stdout).Encode(answer); err != nil || werr != nil {
		return 1
	}
	if err := silence(); err != nil {
		return 1
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.ECHILD) || (err == nil && pid == 0) {
			<-children
		}
	}
}

// arrange reads an order and carries it out.
func arrange(in io.Reader) (warnings []string, err error) {
	var o order
	dec := json.NewDecoder(io.LimitReader(in, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return nil, fmt.Errorf("read orders: %w", err)
	}
	// Root's commands share init's user id: without this they could trace it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("be undumpable: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	for _, path := range o.Hide {
		if err := hide(path); err != nil {
			return nil, fmt.Errorf("hide %s: %w", path, err)
		}
	}
	if !o.Proc {
		return nil, nil
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	return protectProc(), nil
}

// hide covers a directory by an empty one that nobody can write. It is not
// unmounted: a wall may show the same directory below its mount point as
// well, as gVisor's file server does, and would uncover it.
func hide(path string) error {
	return unix.Mount("none", path, "tmpfs",
		unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0555")
}

// protectProc makes read-only what root could otherwise use to reach the
// kernel through a fresh /proc. A kernel that serves no such file, or can't
// mount over it, is reported and no obstacle: where it matters, a wall does
// not let root in.
func protectProc() (warnings []string) {
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "kcore", "keys", "timer_list"} {
		path := filepath.Join("/proc", name)
		err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|
				unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("make %s read-only: %v", path, err))
		}
	}
	return warnings
}

// silence replaces the standard descriptors, so that init holds nothing of
// the agent's.
func silence() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("replace descriptor %d: %w", fd, err)
		}
	}
	return unix.Close(null)
}
