package proxy

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

var (
	errRefused         = syscall.ECONNREFUSED
	errReset           = syscall.ECONNRESET
	errUnreachable     = syscall.ENETUNREACH
	errHostUnreachable = syscall.EHOSTUNREACH
)

func tooFast(rule string, wait time.Duration) *Refusal {
	seconds := int(wait/time.Second) + 1
	r := refuse(http.StatusTooManyRequests, CodeLimit, "more requests in a minute than the rule allows")
	r.Rule, r.Hint = rule, "try again in "+strconv.Itoa(seconds)+" s"
	return r
}

func tooMuch(rule, reason string) *Refusal {
	r := refuse(http.StatusRequestEntityTooLarge, CodeLimit, reason)
	r.Rule = rule
	return r
}

// errEnded is what a body's reader gets once the exchange is over.
var errEnded = errors.New("the exchange has ended")

// upload is a request's body on its way upstream.
type upload struct {
	x     *exchange
	body  io.Reader
	read  atomic.Bool // anything
	ended atomic.Bool
}

// Read reads what may pass.
func (u *upload) Read(p []byte) (int, error) {
	if u.ended.Load() {
		return 0, errEnded
	}
	u.read.Store(true)
	n, err := u.body.Read(p)
	if n > 0 {
		total := u.x.sent.Add(int64(n))
		if why := u.x.spend(int64(n), total, u.x.limits.RequestBytes, "the request's body is larger than its rule allows"); why != nil {
			u.x.fail(why)
			return 0, why
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if why, ok := errors.AsType[*Refusal](err); ok {
			u.x.note(why)
		}
	}
	return n, err
}

// Close is the transport's word that it needs no more. The body itself belongs
// to the server.
func (u *upload) Close() error {
	u.ended.Store(true)
	return nil
}

// again has the body sent once more, over another connection: only while
// nothing was read of it. whole is the body as the guard has left it.
func (u *upload) again(whole io.ReadCloser) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		if u.read.Load() {
			return nil, errEnded
		}
		u.ended.Store(false)
		return whole, nil
	}
}

// spend counts n bytes more, total of them in one body, and says whether they
// may pass.
func (x *exchange) spend(n, total, most int64, reason string) *Refusal {
	if most > 0 && total > most && !weak.On(weak.NetLimitsOff) {
		return tooMuch(x.verdict.Rule, reason)
	}
	if x.account.Take(n) < n {
		return tooMuch(x.verdict.Rule, "the rule's bytes are used up")
	}
	return nil
}

// watchdog ends an exchange on which nothing has moved for too long. It looks
// at counters now and then, so that what moves costs nothing more.
type watchdog struct {
	x     *exchange
	every time.Duration

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	seen  int64
	still int // looks at which nothing had moved
}

// patience is how many looks make a stall.
const patience = 4

func (x *exchange) watch() (stop func()) {
	d := x.cn.p.o.Timeouts.Stall
	if d <= 0 {
		return func() {}
	}
	w := &watchdog{x: x, every: d / patience}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.every, w.look)
	return func() { w.timer.Stop() }
}

func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := w.x.sent.Load() + w.x.received.Load()
	if w.seen != moved {
		w.seen, w.still = moved, 0
	}
	if w.still++; w.still > patience {
		w.x.fail(refuse(http.StatusGatewayTimeout, CodeStalled, "nothing was sent either way for too long"))
		return
	}
	if w.x.ctx.Err() == nil {
		w.timer.Reset(w.every)
	}
}
