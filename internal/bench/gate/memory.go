package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/bench"
)

// settled is how long connections are left alone before memory is looked at.
const settled = 2 * time.Second

// held are ways in which connections can be open.
var held = []struct{ name, do, host string }{
	{"unread", "hold", nameUnread},
	{"read, kept", "hold", nameServer},
	{"read, streaming", "stream", nameServer},
}

// memory measures gates of the process wall: a wall makes no difference.
func (b *bencher) memory(ctx context.Context) (*bench.GroupResult, error) {
	g := &bench.GroupResult{Title: "a gate's memory with so many connections open"}
	for _, h := range held {
		for _, n := range []int{0, 100, 1000} {
			if n == 0 && h != held[0] {
				continue
			}
			name := fmt.Sprintf("%d %s", n, h.name)
			if n == 0 {
				name = "0"
			}
			metrics, err := b.hold(ctx, h.do, h.host, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			g.Cases = append(g.Cases, bench.CaseResult{Name: name, Metrics: metrics})
		}
	}
	return g, nil
}

// hold makes an instance, has the client keep n connections open, and looks.
func (b *bencher) hold(ctx context.Context, do, host string, n int) (_ []bench.MetricResult, err error) {
	id, err := b.d.create(ctx, "process", true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.d.c.Remove(context.WithoutCancel(ctx), id, true)) }()
	pid, err := gateOf(id)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		in, stop := io.Pipe()
		out := &signalling{text: "open\n", seen: make(chan struct{})}
		ended := make(chan error, 1)
		args := []string{"-do", do, "-n", fmt.Sprint(n), "-host", host}
		if host == nameUnread {
			args = append(args, "-ca", shown+"/roots.pem")
		}
		go func() { ended <- b.d.exec(ctx, id, in, out, args...) }()
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
	wait := time.NewTimer(settled)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return memoryOf(pid)
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

// gateOf finds the process of an instance's gate.
func gateOf(id string) (int, error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && bytes.HasPrefix(line, []byte("carboy-gate\x00")) && bytes.Contains(line, []byte(id)) {
			var pid int
			_, err := fmt.Sscan(e.Name(), &pid)
			return pid, err
		}
	}
	return 0, fmt.Errorf("box %s has no gate", id)
}

// memoryOf reads what a process has: memory of its own, and its part of what
// it shares with others.
func memoryOf(pid int) ([]bench.MetricResult, error) {
	var own, share float64
	for file, fields := range map[string]map[string]*float64{
		"status": {"RssAnon:": &own}, "smaps_rollup": {"Pss:": &share},
	} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) > 1 && fields[f[0]] != nil {
				if _, err := fmt.Sscan(f[1], fields[f[0]]); err != nil {
					return nil, err
				}
			}
		}
	}
	return []bench.MetricResult{
		bench.MetricResult{Name: "anonymous", Unit: "MiB"}.Of([]float64{own / 1024}),
		bench.MetricResult{Name: "PSS", Unit: "MiB"}.Of([]float64{share / 1024}),
	}, nil
}
