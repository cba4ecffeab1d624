package guest

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
//
// A socket that a program has bound to a path is the host's, too, and nobody
// but the program can give it up: where there is one, it is named.
func (a *agent) suspend(w http.ResponseWriter, r *http.Request) {
	if held := boundSocket(a.cfg.Socket); held != "" {
		http.Error(w, held, http.StatusConflict)
		return
	}
	_ = os.Remove(a.beside(fileAwake))
	_ = os.Remove(a.beside(fileAsleep))
	a.health(w, r)
	select {
	case a.suspended <- struct{}{}:
	default: // it is about to
	}
}

// unixTable lists unix sockets: their path, where they have one, comes last.
const unixTable = "/proc/net/unix"

// connected is the state of a socket in that table whose path is its peer's.
const connected = "03"

// boundSocket names a path that somebody's socket is bound to, but for own, or
// is "". What is below /dev is in no file system of the host's.
func boundSocket(own string) string {
	table, err := os.ReadFile(unixTable)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), " /", 2)
		state := strings.Fields(f[0])
		if len(f) < 2 || len(state) < 6 || state[5] == connected {
			continue
		}
		if path := "/" + f[1]; path != own && !strings.HasPrefix(path, "/dev/") {
			return path
		}
	}
	return ""
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
