package node_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/node"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// domain is a Manager, and remembers settings too.
type domain struct {
	drain     bool
	instances []*sandbox.Sandbox
	settings  map[string]string
}

func (d *domain) List(context.Context, sandbox.Caller, sandbox.Filter) ([]*sandbox.Sandbox, error) {
	return d.instances, nil
}

func (d *domain) Counts() sandbox.Counts { return sandbox.Counts{Creates: 3, Failures: 1, Starting: 2} }
func (d *domain) Drain(drain bool)       { d.drain = drain }

func (d *domain) Setting(_ context.Context, name string) (string, error) {
	return d.settings[name], nil
}

func (d *domain) SetSetting(_ context.Context, name, value string) error {
	d.settings[name] = value
	return nil
}

func TestInfo(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "cpu  100 0 100 800 0 0 0 0 0 0\n")
	write("meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nHugePages_Total: 8\nHugePages_Free: 6\nHugePages_Rsvd: 1\nHugepagesize: 2048 kB\n")
	write("cpuinfo", "cpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Fine CPU\n\ncpu family\t: 7\n")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &domain{settings: map[string]string{}, instances: []*sandbox.Sandbox{
		{Spec: sandbox.Spec{Limits: sandbox.Limits{CPUs: 1.5, Memory: 100}}}, {Spec: sandbox.Spec{Limits: sandbox.Limits{CPUs: 1, Memory: 10}}},
	}}
	o := node.Options{Manager: d, Settings: d, Dir: t.TempDir(), Version: "v", Now: func() time.Time { return now }, Proc: proc}
	n, err := node.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(10 * time.Second)
	write("stat", "cpu  175 0 100 825 0 0 0 0 0 0\n")
	i, err := n.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i.CPUPercent != 75 || i.MemoryTotal != 1000<<10 || i.MemoryUsed != 600<<10 || i.HugeUsed != 2 || i.HugePage != 2<<20 ||
		i.Family != "6" || i.Model != "85" || i.ModelName != "Fine CPU" || i.AllocatedCPUs != 3 || i.AllocatedMemory != 110 ||
		i.Running != 2 || i.Counts.Creates != 3 || i.Disk.Total <= 0 {
		t.Errorf("info = %+v", i)
	}
	if i.ID != n.ID() || i.Status != node.Ready {
		t.Errorf("info = %+v", i)
	}
	if err := n.SetStatus(t.Context(), node.Standby); err != nil || !d.drain {
		t.Errorf("standby: %v, drains %v", err, d.drain)
	}
	d.drain = false
	again, err := node.Open(t.Context(), o)
	if err != nil || again.ID() != n.ID() || !d.drain {
		t.Errorf("opened again: %v, drains %v", err, d.drain)
	}
	if j, _ := again.Info(t.Context()); j.Instance == i.Instance || !j.ChangedAt.Equal(now) {
		t.Errorf("opened again: %+v", j)
	}
}

// Where nothing can be read, nothing is told.
func TestInfoOfNothing(t *testing.T) {
	d := &domain{settings: map[string]string{}}
	n, err := node.Open(t.Context(), node.Options{Manager: d, Settings: d, Dir: "/nowhere", Proc: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if i, err := n.Info(t.Context()); err != nil || i.MemoryTotal != 0 || i.CPUPercent != 0 || i.Disk != (node.Disk{}) {
		t.Errorf("info = %+v %v", i, err)
	}
}
