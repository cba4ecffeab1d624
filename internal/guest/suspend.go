package guest

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Beside the agent's socket: the agent has given it up, and whoever asked for
// that wants it back.
const (
	fileAsleep = "asleep"
	fileAwake  = "awake"
)

// awakePoll is how often a suspended agent looks for it. There is no event to
// wait for: the next moment may be days later, in another process of the host.
const awakePoll = 5 * time.Millisecond

// suspend has the agent give up its socket once this is answered: a kernel
// that is about to be written to disk must hold nothing of the host's.
// Commands go on; whoever reads their output has to come again.
func (a *agent) suspend(w http.ResponseWriter, r *http.Request) {
	_ = os.Remove(a.beside(fileAwake))
	_ = os.Remove(a.beside(fileAsleep))
	a.health(w, r)
	select {
	case a.suspended <- struct{}{}:
	default: // it is about to
	}
}

func (a *agent) beside(name string) string { return filepath.Join(filepath.Dir(a.cfg.Socket), name) }

// asleep says that nothing of the host's is open any more.
func (a *agent) asleep() error { return os.WriteFile(a.beside(fileAsleep), nil, 0o600) }

// awaken returns once the agent is wanted, or when ctx ends.
func (a *agent) awaken(ctx context.Context) error {
	tick := time.NewTicker(awakePoll)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(a.beside(fileAwake)); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
