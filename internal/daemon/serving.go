package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
)

// serving are the servers of one daemon.
type serving []*http.Server

// shutdown stops listening, waits until every request has ended or the grace
// is over, and reports which.
func (s serving) shutdown(grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var wg sync.WaitGroup
	ended := make([]bool, len(s))
	for i, srv := range s {
		wg.Go(func() { ended[i] = srv.Shutdown(ctx) == nil })
	}
	wg.Wait()
	for _, ok := range ended {
		if !ok {
			return false
		}
	}
	return true
}

// lastRequests is how long who has connected has to be read.
const lastRequests = 100 * time.Millisecond

// retire lets nobody else connect to the unix socket, and who has be told that the
// daemon leaves: a server that shuts down drops what it has just read, and whose
// connection breaks before an answer can't know that nothing was done.
func retire(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		if u, ok := l.(*home.Listener); ok {
			errs = append(errs, u.Retire())
		}
	}
	<-time.After(lastRequests)
	return errors.Join(errs...)
}

// close breaks every connection.
func (s serving) close() {
	for _, srv := range s {
		_ = srv.Close()
	}
}

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
		return newBounded(l, minCallers)
	}
	return newBounded(l, callers(r.Cur))
}
