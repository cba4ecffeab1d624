package gitgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	maxOrderBytes = 16 << 20 // of commands, besides the pack
	pushTime      = 2 * time.Hour
	forwardTime   = time.Hour
)

// aliveTime is after which a client that waits hears that it is not forgotten.
var aliveTime = 5 * time.Second

// receive takes a push.
func (g *Gate) receive(w http.ResponseWriter, req *http.Request, r *remote) {
	began := time.Now()
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	ctx, cancel := context.WithTimeoutCause(req.Context(), pushTime, errors.New("it takes too long"))
	defer cancel()
	c := newReporter(w)
	defer c.end()
	body, err := asked(w, req, r.Policy.MaxPush+maxOrderBytes)
	if err != nil {
		c.fail(sentence(r, err))
		return
	}
	o, err := readOrder(body)
	c.listen(o)
	if errors.Is(err, errAsked) {
		return
	}
	if err != nil {
		_, _ = io.Copy(io.Discard, body) // or the client would not hear why
		c.fail(sentence(r, err))
		return
	}
	p := &push{gate: g, remote: r, order: o, client: c}
	err = p.inTurn(ctx, body)
	c.report(o, err, p)
	g.c.Observe(p.event(began, err))
}

// inTurn takes a push through when it is its turn. Who waits for that, or for a person, is in
// nobody's way but that of other pushes.
func (p *push) inTurn(ctx context.Context, body io.Reader) error {
	done, err := p.begin(ctx)
	if err != nil {
		_, _ = io.Copy(io.Discard, body) // or the client would not hear why
		return err
	}
	defer done()
	return p.run(ctx, body)
}

// begin waits for a push's turn, for room, and for what upstream is now.
func (p *push) begin(ctx context.Context) (done func(), err error) {
	give, err := p.remote.push.take(ctx)
	if err != nil {
		return nil, err
	}
	if p.leave, err = p.gate.enter(ctx); err != nil {
		give()
		return nil, err
	}
	a, read, err := p.remote.current(ctx, true)
	if err == nil && a.format != p.order.format {
		read()
		err = denied("a push with a command that is none of git's for it")
	}
	if err != nil {
		p.leave()
		give()
		return nil, err
	}
	p.known = a
	return func() {
		read()
		p.leave()
		give()
	}, nil
}

// reporter tells a client how its push ended.
type reporter struct {
	out *answerWriter

	mu    sync.Mutex // of what is written
	bands bool       // the client reads several bands
	quit  chan struct{}
	over  sync.WaitGroup
}

func newReporter(w http.ResponseWriter) *reporter {
	return &reporter{out: &answerWriter{w: w, control: http.NewResponseController(w)}, quit: make(chan struct{})}
}

// fail tells of a push that can't even be read.
func (c *reporter) fail(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bands {
		_, _ = io.WriteString(pktline.Band{W: c.out, Band: pktline.BandError}, text+"\n") // who pushed may be gone
		return
	}
	_, _ = c.out.Write(pktline.Append(nil, "ERR "+text+"\n")) // as above
}

// listen is called when all of a request was understood but its objects. The client may be
// told things from the time on that those were read.
func (c *reporter) listen(o *order) { c.bands = o.caps["side-band-64k"] }

// wait has the client hear something now and then, so that nobody between takes the
// connection for dead.
func (c *reporter) wait() {
	if !c.bands {
		return
	}
	c.over.Go(func() {
		tick := time.NewTicker(aliveTime)
		defer tick.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-tick.C:
				c.mu.Lock()
				_, _ = fmt.Fprintf(c.out, "0005%c", pktline.BandData) // who pushed may be gone
				c.mu.Unlock()
			}
		}
	})
}

// end ends wait.
func (c *reporter) end() {
	close(c.quit)
	c.over.Wait()
}

// tell shows lines to who pushed. They are made fit to be shown.
func (c *reporter) tell(lines ...string) {
	if !c.bands {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range lines {
		_, _ = io.WriteString(pktline.Band{W: c.out, Band: pktline.BandProgress}, term.Escape(line)+"\n") // who pushed may be gone
	}
}

// report says of each ref what became of it.
func (c *reporter) report(o *order, failed error, p *push) {
	var b []byte
	unpacked := "ok"
	if p.unpack != nil {
		unpacked = reason(p.remote.public(p.unpack))
	}
	b = pktline.Append(b, "unpack "+unpacked+"\n")
	for _, u := range o.updates {
		switch why := p.refused[u.Ref]; {
		case failed == nil:
			b = pktline.Append(b, "ok "+u.Ref+"\n")
		case why != "":
			b = pktline.Append(b, "ng "+u.Ref+" "+reason(why)+"\n")
		default:
			b = pktline.Append(b, "ng "+u.Ref+" "+reason(p.short(failed))+"\n")
		}
	}
	b = pktline.AppendFlush(b)
	if failed != nil {
		c.tell(strings.Split(sentence(p.remote, failed), "; ")...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bands {
		_, _ = pktline.Band{W: c.out, Band: pktline.BandData}.Write(b) // who pushed may be gone
		b = pktline.AppendFlush(nil)
	}
	_, _ = c.out.Write(b) // as above
}

// reason is a text for a line of a report.
func reason(s string) string {
	return strings.ReplaceAll(clip(words(s), 300), "\n", " ")
}
