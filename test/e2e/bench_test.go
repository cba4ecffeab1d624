package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
)

// spawner forks, executes and reaps /bin/true for each line that it reads,
// and answers with the microseconds: what a command costs inside by itself.
const spawner = `
import os, sys, time
for _ in sys.stdin:
    s = time.perf_counter()
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    print(int((time.perf_counter() - s) * 1e6), flush=True)
`

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func report(b *testing.B, name string, d []time.Duration) {
	b.ReportMetric(float64(median(d).Microseconds()), name+"-µs/median")
}

func (h *home) client(tb testing.TB) *client.Client {
	tb.Helper()
	c, err := client.New(client.Options{Socket: h.dir + "/run/carboy/carboy.sock"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// BenchmarkExec runs /bin/true through the daemon and the Go client, and in
// turn inside alone.
func BenchmarkExec(b *testing.B) {
	h := newHome(b)
	name := h.create()
	c := h.client(b)
	in, lines := h.spawner(b, name)
	var outside, inside []time.Duration
	for b.Loop() {
		start := time.Now()
		exit, err := c.Exec(b.Context(), name, client.ExecOptions{Command: &guestv1.Command{Argv: []string{"/bin/true"}}})
		if err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
		outside = append(outside, time.Since(start))
		fmt.Fprintln(in)
		if !lines.Scan() {
			b.Fatal("the spawner has ended")
		}
		us, err := strconv.Atoi(lines.Text())
		if err != nil {
			b.Fatal(err)
		}
		inside = append(inside, time.Duration(us)*time.Microsecond)
	}
	report(b, "exec", outside)
	report(b, "inside", inside)
	b.ReportMetric(float64(median(outside))/float64(median(inside)), "ratio")
}

func (h *home) spawner(b *testing.B, name string) (io.Writer, *bufio.Scanner) {
	b.Helper()
	cmd := h.command(b.Context(), "exec", "-i", name, "--", "python3", "-c", spawner)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return in, bufio.NewScanner(out)
}

// BenchmarkCreate goes from create to the first output of a command, and in
// turn does the same by gVisor's own command line with the same skeleton,
// programs and flags.
func BenchmarkCreate(b *testing.B) {
	h := newHome(b)
	h.create() // a daemon, and its caches
	c := h.client(b)
	bundle := h.bundle(b)
	var ours, stock []time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		sb, err := c.Create(b.Context(), api.CreateRequest{})
		if err != nil {
			b.Fatal(err)
		}
		var out strings.Builder
		if _, err := c.Exec(b.Context(), sb.ID, client.ExecOptions{
			Command: &guestv1.Command{Argv: []string{"echo", "hello"}}, Stdout: &out,
		}); err != nil || out.String() != "hello\n" {
			b.Fatal(out.String(), err)
		}
		ours = append(ours, time.Since(start))
		if err := c.Remove(b.Context(), sb.ID, true); err != nil {
			b.Fatal(err)
		}
		stock = append(stock, h.stock(b, bundle, i))
	}
	report(b, "carboy", ours)
	report(b, "runsc", stock)
	b.ReportMetric(float64(median(ours))/float64(median(stock)), "ratio")
}

// stock times `runsc run` to its first byte of output.
func (h *home) stock(b *testing.B, bundle string, i int) time.Duration {
	b.Helper()
	programs, err := filepath.Glob(filepath.Join(h.dir, "state", "carboy", "programs", "carboy-gvisor-*"))
	if err != nil || len(programs) != 1 {
		b.Fatal("gVisor's program: ", programs, err)
	}
	cmd := exec.CommandContext(b.Context(), programs[0])
	cmd.Args = []string{
		"carboy-runsc", "--root=" + filepath.Join(bundle, "state"), "--platform=systrap", "--network=none",
		"--ignore-cgroups", "--directfs=false", "--host-uds=create", "--overlay2=none", "--file-access=exclusive",
		"--in-sandbox-cgroup=v2", "--host-settings=ignore", "--app-huge-pages=false",
		"run", "-bundle", bundle, fmt.Sprintf("stock-%d", i),
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		b.Fatal("runsc run: ", err)
	}
	took := time.Since(start)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		b.Fatal("runsc run: ", err)
	}
	return took
}

// bundle describes a box like ours to gVisor's own command line.
func (h *home) bundle(b *testing.B) string {
	b.Helper()
	roots, err := filepath.Glob(filepath.Join(cacheDir(b), "carboy/hostimage/*/root/etc"))
	if err != nil || len(roots) == 0 {
		b.Fatal("no skeleton: ", roots, err)
	}
	mounts := []map[string]any{
		{"type": "proc", "source": "proc", "destination": "/proc"},
		{"type": "tmpfs", "source": "tmpfs", "destination": "/dev/shm"},
		{"type": "tmpfs", "source": "tmpfs", "destination": "/tmp"},
		{"type": "bind", "source": "/usr", "destination": "/usr", "options": []string{"rbind", "ro"}},
		{"type": "bind", "source": "/var/lib/dpkg", "destination": "/var/lib/dpkg", "options": []string{"rbind", "ro"}},
		{"type": "bind", "source": h.dir, "destination": "/workspace", "options": []string{"rbind"}},
	}
	spec := map[string]any{
		"ociVersion": "1.1.0",
		"process": map[string]any{
			"user": map[string]int{"uid": 1000, "gid": 1000}, "cwd": "/",
			"args": []string{"/bin/echo", "hello"}, "env": []string{"PATH=/usr/bin:/bin"},
		},
		"root": map[string]any{"path": filepath.Dir(roots[0]), "readonly": true}, "mounts": mounts,
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "network"}, {"type": "mount"}}},
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	b.Cleanup(func() { // gVisor's own command line pins a network namespace there
		_ = syscall.Unmount(filepath.Join(dir, "state", "null-netns"), 0)
	})
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600); err != nil {
		b.Fatal(err)
	}
	return dir
}
