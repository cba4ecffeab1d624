package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/bench"
)

// place is where the client runs, and what is between it and the server.
type place struct {
	name    string
	against []string
	args    []string // of the client
	pid     int      // of what is between; 0: nothing is
	run     func(ctx context.Context, out *bytes.Buffer, args ...string) error
}

// do has the client do something there.
func (p *place) do(ctx context.Context, what string, n int) (l loaded, err error) {
	var out bytes.Buffer
	args := append([]string{"-do", what, "-n", strconv.Itoa(n)}, p.args...)
	before, err := cpuTime(p.pid)
	if err != nil {
		return l, err
	}
	if err := p.run(ctx, &out, args...); err != nil {
		return l, fmt.Errorf("%s: %s: %w", p.name, what, err)
	}
	after, err := cpuTime(p.pid)
	if err != nil {
		return l, err
	}
	l.between = after - before
	return l, json.Unmarshal(out.Bytes(), &l)
}

// cpuTime is what a process has had of processors.
func cpuTime(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is none", pid)
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, err2)
}

// onHost runs the client beside the server.
func onHost(ctx context.Context, out *bytes.Buffer, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, exe, append([]string{roleLoad}, args...)...)
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return nil
}

var walls = []string{"process", "gvisor"}

// bencher is a run.
type bencher struct {
	o      options
	w      *world
	d      *daemon
	places []*place
	rep    *bench.Report
	failed map[string][]string // what went wrong in the group, by place
}

func (w *world) runAll(ctx context.Context, o options) (*bench.Report, error) {
	b := &bencher{o: o, w: w, rep: &bench.Report{
		Schema: bench.Schema, Started: time.Now().UTC(), Rounds: o.rounds, Machine: bench.LookAround(w.dir),
	}}
	out, err := exec.CommandContext(ctx, o.carboy, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.carboy, err)
	}
	b.rep.Version, _, _ = strings.Cut(strings.TrimPrefix(string(out), "carboy "), "\n")
	if b.d, err = w.startDaemon(ctx, o.carboy); err != nil {
		return nil, err
	}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	for _, g := range []struct {
		name string
		run  func(context.Context) (*bench.GroupResult, error)
	}{
		{"requests", b.requests},
		{"down", b.transfer("down")},
		{"up", b.transfer("up")},
		{"events", b.events},
		{"memory", b.memory},
		{"create", b.create},
	} {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), g.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "gate bench:", g.name)
		res, err := g.run(ctx)
		if err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		res.Name = g.name
		b.rep.Groups = append(b.rep.Groups, *res)
	}
	b.rep.Took = time.Since(b.rep.Started).Seconds()
	return b.rep, nil
}

// open makes all places.
func (b *bencher) open(ctx context.Context) error {
	b.places = []*place{{name: "direct", args: []string{"-ca", b.w.roots}, run: onHost}}
	for _, wall := range walls {
		id, err := b.d.create(ctx, wall, true)
		if err != nil {
			return err
		}
		pid, err := gateOf(id)
		if err != nil {
			return err
		}
		inside := func(ctx context.Context, out *bytes.Buffer, args ...string) error {
			return b.d.exec(ctx, id, nil, out, args...)
		}
		b.places = append(b.places,
			&place{
				name: wall + "-unread", against: []string{"direct"}, pid: pid,
				args: []string{"-host", nameUnread, "-ca", filepath.Join(shown, "roots.pem")}, run: inside,
			},
			&place{name: wall + "-read", against: []string{wall + "-unread", "direct"}, pid: pid, run: inside},
			&place{name: wall + "-read-h2", against: []string{wall + "-read", "direct-h2"}, args: []string{"-h2"}, pid: pid, run: inside})
	}
	b.places = append(b.places, &place{name: "direct-h2", args: []string{"-h2", "-ca", b.w.roots}, run: onHost})
	for _, peer := range []struct {
		name, dir string
		start     func(context.Context, string) (*proxy, error)
	}{{"squid", b.o.squid, b.w.squid}, {"mitmproxy", b.o.mitmproxy, b.w.mitmproxy}} {
		found := bench.Peer{Name: peer.name, Note: "scripts/bench-gate.sh brings it"}
		if peer.dir != "" {
			p, err := peer.start(ctx, peer.dir)
			if err != nil {
				return err
			}
			found.Found, found.Note = true, p.version
			b.places = append(b.places, &place{name: p.name, against: []string{"direct"}, pid: p.pid, args: []string{"-proxy", p.url, "-ca", p.ca}, run: onHost})
		}
		b.rep.Peers = append(b.rep.Peers, found)
	}
	if b.o.places != "" {
		b.places = slices.DeleteFunc(b.places, func(p *place) bool { return !slices.Contains(strings.Split(b.o.places, ","), p.name) })
	}
	return nil
}

// rounds has each place take its turn, in an order of its own for each round.
// The first round does not count. What fails is in no number.
func (b *bencher) rounds(ctx context.Context, n int, turn func(p *place, counts bool) error) error {
	b.failed = map[string][]string{}
	for round := range n + 1 {
		for _, i := range rand.Perm(len(b.places)) {
			err := turn(b.places[i], round > 0)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				b.failed[b.places[i].name] = append(b.failed[b.places[i].name], err.Error())
			}
		}
	}
	return nil
}

// metrics are what the places showed, of one kind.
type metrics struct {
	name, unit string
	samples    map[string][]float64
}

func newMetrics(name, unit string) *metrics {
	return &metrics{name: name, unit: unit, samples: map[string][]float64{}}
}

func (m *metrics) of(name string) bench.MetricResult {
	return bench.MetricResult{Name: m.name, Unit: m.unit}.Of(m.samples[name])
}

// result is a group of all places.
func (b *bencher) result(title string, all ...*metrics) *bench.GroupResult {
	g := &bench.GroupResult{Title: title}
	for _, p := range b.places {
		c := bench.CaseResult{Name: p.name, Failures: len(b.failed[p.name]), Reasons: slices.Compact(b.failed[p.name])}
		for _, m := range all {
			r := m.of(p.name)
			for _, other := range p.against {
				r = r.Against(other, m.of(other))
			}
			c.Metrics = append(c.Metrics, r)
		}
		g.Cases = append(g.Cases, c)
	}
	return g
}

// at is the value below which a part of samples lies.
func at(part float64, samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	return s[min(int(part*float64(len(s))), len(s)-1)]
}

func (b *bencher) requests(ctx context.Context) (*bench.GroupResult, error) {
	each, slow := newMetrics("each", "µs"), newMetrics("99 % of a round's", "µs")
	work := newMetrics("processor time between", "µs")
	err := b.rounds(ctx, b.o.rounds, func(p *place, counts bool) error {
		l, err := p.do(ctx, "requests", b.o.requests)
		if err == nil && counts {
			each.samples[p.name] = append(each.samples[p.name], l.Micros...)
			slow.samples[p.name] = append(slow.samples[p.name], at(0.99, l.Micros))
			if p.pid != 0 {
				work.samples[p.name] = append(work.samples[p.name], float64(l.between.Microseconds())/float64(len(l.Micros)+min(len(l.Micros), warmup)))
			}
		}
		return err
	})
	g := b.result("HTTPS requests of one connection, one after the other, each answered with 200 bytes", each, slow, work)
	for i := range g.Cases {
		g.Cases[i].Metrics[0].Samples = nil // too many to hand on
	}
	return g, err
}

func (b *bencher) transfer(way string) func(context.Context) (*bench.GroupResult, error) {
	return func(ctx context.Context) (*bench.GroupResult, error) {
		took, work := newMetrics(way, "ms"), newMetrics("processor time between", "ms")
		err := b.rounds(ctx, b.o.rounds, func(p *place, counts bool) error {
			l, err := p.do(ctx, way, b.o.megabytes)
			if err == nil && counts {
				took.samples[p.name] = append(took.samples[p.name], l.Millis)
				if p.pid != 0 {
					work.samples[p.name] = append(work.samples[p.name], float64(l.between.Milliseconds()))
				}
			}
			return err
		})
		return b.result(fmt.Sprintf("%d MiB over HTTPS, as one body", b.o.megabytes), took, work), err
	}
}

func (b *bencher) events(ctx context.Context) (*bench.GroupResult, error) {
	first, gaps := newMetrics("first event", "µs"), newMetrics("gap", "µs")
	off, worst := newMetrics("99 % of gaps off by", "µs"), newMetrics("worst gap off by", "µs")
	err := b.rounds(ctx, b.o.streams, func(p *place, counts bool) error {
		l, err := p.do(ctx, "events", b.o.events)
		if err != nil || !counts {
			return err
		}
		offs := make([]float64, 0, len(l.Micros))
		for _, us := range l.Micros {
			offs = append(offs, max(us-float64(gap.Microseconds()), float64(gap.Microseconds())-us))
		}
		for m, v := range map[*metrics]float64{first: l.First, gaps: at(0.5, l.Micros), off: at(0.99, offs), worst: slices.Max(offs)} {
			m.samples[p.name] = append(m.samples[p.name], v)
		}
		return nil
	})
	return b.result(fmt.Sprintf("a stream of %d events, %v between two", b.o.events, gap), first, gaps, off, worst), err
}

func (b *bencher) create(ctx context.Context) (*bench.GroupResult, error) {
	took := newMetrics("create", "ms")
	type kind struct {
		wall    string
		network bool
	}
	var kinds []kind
	for _, wall := range walls {
		kinds = append(kinds, kind{wall, false}, kind{wall, true})
	}
	name := func(k kind) string {
		if k.network {
			return k.wall + "-network"
		}
		return k.wall + "-off"
	}
	for round := range b.o.creates + 1 {
		for _, i := range rand.Perm(len(kinds)) {
			k := kinds[i]
			begun := time.Now()
			id, err := b.d.create(ctx, k.wall, k.network)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				took.samples[name(k)] = append(took.samples[name(k)], float64(time.Since(begun).Microseconds())/1e3)
			}
			if err := b.d.c.Remove(ctx, id, true); err != nil {
				return nil, err
			}
		}
	}
	g := &bench.GroupResult{Title: "until a create has returned; with a network, that is after link, gate and probe"}
	for _, k := range kinds {
		r := took.of(name(k))
		if k.network {
			r = r.Against(name(kind{k.wall, false}), took.of(name(kind{k.wall, false})))
		}
		g.Cases = append(g.Cases, bench.CaseResult{Name: name(k), Metrics: []bench.MetricResult{r}})
	}
	return g, nil
}
