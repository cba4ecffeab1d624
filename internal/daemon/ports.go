package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/publish"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// publisher keeps ports of sandboxes open on the loopback.
func (d *daemon) publisher() *publish.Ports {
	anyone := sandbox.Caller{Admin: true}
	return publish.New(publish.Options{
		Dial: func(ctx context.Context, id string, port int) (net.Conn, error) {
			return d.manager.Dial(ctx, anyone, id, port)
		},
		Opened: func(id, text string) {
			if err := d.manager.Record(context.Background(), anyone, id, sandbox.Event{Type: "ports", Message: text}); err != nil {
				d.log.Warn("write event", "id", id, "error", err)
			}
		},
		MaxConns: publishedConns(), Log: d.log,
	})
}

// publishedConns is how many connections there may be through published ports:
// an eighth of the files that this process may open, and each takes two.
func publishedConns() int { return files(8) }

// browserConns is how many connections browsers may have: each may need one more,
// into a sandbox.
func browserConns() int { return files(8) }

// files is a part of the files that this process may open.
func files(part uint64) int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return minCallers
	}
	return int(min(max(r.Cur/part, minCallers), maxCallers))
}

// portFile names the port of the listener for browsers, so that a daemon that
// comes after has the same: pages that are open go on.
const portFile = "open-port"

// browsers is the listener for browsers on this machine. It is opened when
// somebody first asks for a link.
type browsers struct {
	file string
	log  *slog.Logger

	mu    sync.Mutex
	serve func(net.Listener) // nil: the daemon does not serve yet, or no more
	l     *loopback.Listener
}

func newBrowsers(state string, log *slog.Logger) *browsers {
	return &browsers{file: filepath.Join(state, portFile), log: log}
}

// begin has the listener served by srv, and opens it if an earlier daemon had it open.
func (b *browsers) begin(ctx context.Context, srv *http.Server) {
	b.mu.Lock()
	b.serve = func(l net.Listener) {
		if err := srv.Serve(loopback.Limited{Listener: l, Slots: loopback.NewSlots(browserConns())}); err != http.ErrServerClosed {
			b.log.Error("serve browsers", "error", err)
		}
	}
	b.mu.Unlock()
	if b.last() == 0 {
		return
	}
	if _, err := b.port(ctx); err != nil {
		b.log.Warn("open the listener for browsers", "error", err)
	}
}

// end has the listener not be opened any more. Who serves closes it.
func (b *browsers) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serve = nil
}

// last is the port that the listener had last; 0: none.
func (b *browsers) last() int {
	raw, err := os.ReadFile(b.file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// port opens the listener where it is not open yet, and returns its port.
func (b *browsers) port(ctx context.Context) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.l != nil {
		return b.l.Port(), nil
	}
	if b.serve == nil {
		return 0, sandbox.Errorf(sandbox.Unavailable, "the daemon is starting").WithHint("try again")
	}
	l, err := loopback.ListenNear(ctx, b.last())
	if err != nil {
		return 0, err
	}
	if err := durable.Write(b.file, []byte(strconv.Itoa(l.Port())+"\n"), durable.Options{Mode: 0o600}); err != nil {
		b.log.Warn("write down the port of the listener for browsers", "error", err)
	}
	b.l = l
	go b.serve(l)
	return l.Port(), nil
}
