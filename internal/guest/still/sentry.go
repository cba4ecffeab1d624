package still

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// sentry stops processes by gVisor's kernel. Signals won't do there: it hangs up
// (SIGHUP) a process group without a parent in its session whenever a member
// ends while another is stopped, not only when the group has just lost that
// parent.
type sentry struct{ skip int }

// there reports whether this kernel is gVisor's, as carboy starts it. Linux
// does not know the call.
func (s sentry) there() bool {
	_, err := s.ask(control.HoldCount, s.skip)
	return err == nil
}

func (s sentry) stop() (running int, err error) { return s.ask(control.HoldStop, s.skip) }

func (s sentry) running() (int, error) { return s.ask(control.HoldCount, s.skip) }

func (s sentry) free() { _, _ = s.ask(control.HoldFree, 0) }

func (s sentry) freeKilled(pid int) { _, _ = s.ask(control.HoldFree, pid) }

func (s sentry) ask(what control.HoldCall, pid int) (int, error) {
	n, err := unix.PrctlRetInt(control.PrctlHold, uintptr(what), uintptr(pid), 0, 0)
	if err != nil {
		return 0, fmt.Errorf("ask the kernel to hold processes: %w", err)
	}
	return n, nil
}
