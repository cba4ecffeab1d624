package cgroup_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
)

func BenchmarkCreateRemove(b *testing.B) {
	h := host(b, "bench")
	l := cgroup.Limits{Memory: 1 << 30, CPUs: 2, PIDs: 1000}
	for b.Loop() {
		g, err := h.Create("box", l)
		if err != nil {
			b.Skip(err)
		}
		if err := g.Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnter(b *testing.B) {
	g := group(b, host(b, "bench"), "box", cgroup.Limits{Memory: 1 << 30, CPUs: 2, PIDs: 1000})
	c, _, _ := child(b, "", "sh", "-c", "read x")
	for b.Loop() {
		if err := g.Enter(c.Process.Pid); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOOMKills(b *testing.B) {
	g := group(b, host(b, "bench"), "box", cgroup.Limits{Memory: 1 << 30})
	for b.Loop() {
		if _, err := g.OOMKills(); err != nil {
			b.Fatal(err)
		}
	}
}
