package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/bench/gate"
)

const micros = "µs"

// Metrics of the groups about gates.
const (
	each        = "each"
	slowest     = "99 % of a round's"
	between     = "processor time between"
	firstEvent  = "first event"
	eventGap    = "gap"
	gapsOff     = "99 % of gaps off by"
	worstGapOff = "worst gap off by"
	anonymous   = "anonymous"
)

// Amounts are what is done in a round, and rounds of groups that differ.
type gateAmounts struct{ requests, megabytes, events, streams, creates int }

// groups are what is measured on ways, and of gates alone.
func (g *gated) groups(ways []way) []group {
	n := gateAmounts{requests: 1000, megabytes: 1024, events: 1000, streams: 5, creates: 30}
	if g.w.quick {
		n = gateAmounts{requests: 100, megabytes: 16, events: 100, streams: 1, creates: 3}
	}
	cases := func(f func(p *way) measure) (cases []testCase) {
		for _, at := range ways {
			cases = append(cases, testCase{name: at.name, against: at.against, prepare: func(context.Context) (measure, error) {
				open := g.ways[at.name]
				if open == nil {
					return nil, errors.New("it is not open")
				}
				return f(open), nil
			}})
		}
		return cases
	}
	all := []group{{
		name: "requests", title: "HTTPS requests of one connection, one after the other, each answered with 200 bytes",
		metrics: []metric{{each, micros}, {slowest, micros}, {between, micros}},
		cases:   cases(func(p *way) measure { return p.requests(n.requests) }),
	}}
	for _, direction := range []string{"down", "up"} {
		all = append(all, group{
			name: direction, title: fmt.Sprintf("%d MiB over HTTPS, as one body", n.megabytes),
			metrics: []metric{{direction, millis}, {between, millis}},
			cases:   cases(func(p *way) measure { return p.transfer(direction, n.megabytes) }),
		})
	}
	return append(all, group{
		name: "events", title: fmt.Sprintf("a stream of %d events, %v between two", n.events, gate.Gap), rounds: n.streams,
		metrics: []metric{{firstEvent, micros}, {eventGap, micros}, {gapsOff, micros}, {worstGapOff, micros}},
		cases:   cases(func(p *way) measure { return p.events(n.events) }),
	}, group{
		name: "memory", title: "a gate's memory with so many connections open", rounds: 1,
		metrics: []metric{{anonymous, mebi}, {"PSS", mebi}}, cases: g.memory(),
	}, group{
		name: "create", title: "until a create has returned; with a network, that is after link, gate and probe", rounds: n.creates,
		metrics: []metric{{made, millis}}, cases: g.creates(),
	})
}

// part is the value below which a part of samples lies.
func part(of float64, samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	return s[min(int(of*float64(len(s))), len(s)-1)]
}

// requests measures the median of n requests, as each.
func (p *way) requests(n int) measure {
	return func(ctx context.Context) (values, error) {
		l, took, err := p.do(ctx, "requests", n)
		if err != nil {
			return nil, err
		}
		v := values{each: part(0.5, l.Micros), slowest: part(0.99, l.Micros)}
		if p.pid != 0 {
			v[between] = float64(took.Microseconds()) / float64(n+min(n, gate.Warmup))
		}
		return v, nil
	}
}

func (p *way) transfer(direction string, megabytes int) measure {
	return func(ctx context.Context) (values, error) {
		l, took, err := p.do(ctx, direction, megabytes)
		if err != nil {
			return nil, err
		}
		v := values{direction: l.Millis}
		if p.pid != 0 {
			v[between] = ms(took)
		}
		return v, nil
	}
}

func (p *way) events(n int) measure {
	return func(ctx context.Context) (values, error) {
		l, _, err := p.do(ctx, "events", n)
		if err != nil {
			return nil, err
		}
		want := float64(gate.Gap.Microseconds())
		offs := make([]float64, 0, len(l.Micros))
		for _, us := range l.Micros {
			offs = append(offs, max(us-want, want-us))
		}
		return values{firstEvent: l.First, eventGap: part(0.5, l.Micros), gapsOff: part(0.99, offs), worstGapOff: part(1, offs)}, nil
	}
}

// creates are creates behind each wall, with a network and without.
func (g *gated) creates() (cases []testCase) {
	for _, wall := range walls {
		for _, network := range []bool{false, true} {
			c := testCase{name: wall.name + "-off"}
			if network {
				c = testCase{name: wall.name + "-network", against: []string{wall.name + "-off"}}
			}
			c.prepare = ready(func(ctx context.Context) (values, error) {
				start := time.Now()
				id, err := g.create(ctx, wall.name, network)
				took := time.Since(start)
				if err != nil {
					return nil, err
				}
				return values{made: ms(took)}, g.d.by.Remove(ctx, id, true)
			})
			cases = append(cases, c)
		}
	}
	return cases
}

// settled is how long connections are left alone before memory is looked at.
const settled = 2 * time.Second

// memory measures gates of the process wall: a wall makes no difference.
func (g *gated) memory() []testCase {
	cases := []testCase{{name: "0", prepare: ready(g.hold(0, "hold"))}}
	for _, held := range []struct {
		name, do string
		args     []string
	}{
		{"unread", "hold", unreadArgs()},
		{"read, kept", "hold", nil},
		{"read, streaming", "stream", nil},
	} {
		for _, n := range []int{100, 1000} {
			cases = append(cases, testCase{name: fmt.Sprintf("%d %s", n, held.name), prepare: ready(g.hold(n, held.do, held.args...))})
		}
	}
	return cases
}

// hold makes a sandbox in which the client keeps n connections open, and looks.
func (g *gated) hold(n int, do string, args ...string) measure {
	return func(ctx context.Context) (_ values, err error) {
		id, err := g.create(ctx, "process", true)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, g.d.by.Remove(context.WithoutCancel(ctx), id, true)) }()
		pid, err := gateOf(id)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			in, stop := io.Pipe()
			out := &signalling{text: "open\n", seen: make(chan struct{})}
			ended := make(chan error, 1)
			go func() {
				ended <- g.inside(ctx, id, in, out, append([]string{"-do", do, "-n", fmt.Sprint(n)}, args...)...)
			}()
			select {
			case <-out.seen:
			case err := <-ended:
				return nil, errors.Join(err, errors.New("the client ended early"))
			}
			defer func() {
				stop.Close()
				<-ended
			}()
		}
		if err := pause(ctx, settled); err != nil {
			return nil, err
		}
		sum, err := share([]int{pid})
		if err != nil {
			return nil, err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return values{anonymous: float64(kilobytes(status, "RssAnon")) / (1 << 20), "PSS": float64(sum) / (1 << 20)}, err
	}
}

// signalling closes seen once text was written to it.
type signalling struct {
	text string
	got  bytes.Buffer
	seen chan struct{}
}

// Write gathers p.
func (s *signalling) Write(p []byte) (int, error) {
	before := strings.Contains(s.got.String(), s.text)
	s.got.Write(p)
	if !before && strings.Contains(s.got.String(), s.text) {
		close(s.seen)
	}
	return len(p), nil
}
