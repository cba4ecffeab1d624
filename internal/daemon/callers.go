package daemon

import (
	"net"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

const (
	minCallers = 64
	maxCallers = 1 << 16
)

// callers is how many connections over TCP there may be at once, of a process
// that may have so many open files: a quarter of those. Each may need one more,
// into a sandbox; the rest is for what the daemon does itself, so that strangers
// who connect and say nothing stop no sandbox and not the unix socket.
func callers(files uint64) int {
	return int(min(max(files/4, minCallers), maxCallers))
}

// boundCallers has the connections that are too many wait until others end.
func boundCallers(l net.Listener) net.Listener {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return netutil.LimitListener(l, minCallers)
	}
	return netutil.LimitListener(l, callers(r.Cur))
}
