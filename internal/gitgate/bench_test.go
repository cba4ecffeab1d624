package gitgate_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/test/long"
)

// direct is the URL of an upstream for a git of its own, by the same server.
func (s *server) direct(up *repo, as *repo) string {
	me, err := user.Current()
	must(as.t, err)
	as.env = append(as.env, fmt.Sprintf("GIT_SSH_COMMAND=ssh -F none -q -i %s -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o 'ProxyCommand=/usr/sbin/sshd -i -e -q -f %s -h %s'",
		filepath.Join(filepath.Dir(s.config), "client"), s.config, s.key))
	return "ssh://" + me.Username + "@up.example" + up.dir
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func peak(pid string) int {
	text, _ := os.ReadFile("/proc/" + pid + "/status") // it may be gone
	if m := peakLine.FindSubmatch(text); m != nil {
		kib, _ := strconv.Atoi(string(m[1])) // it is digits
		return kib
	}
	return 0
}

// peaks are the most memory that this process, which has the gate, and any process of its jail have had: in KiB.
// They are looked at until end is called.
func peaks(dir string) (end func() (own, jailed int)) {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // where that can't be, it is since the beginning
	stop := make(chan struct{})
	most := 0
	var looking sync.WaitGroup
	looking.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
			lists, _ := filepath.Glob("/proc/self/task/*/children")
			for _, list := range lists {
				pids, _ := os.ReadFile(list)
				for _, pid := range strings.Fields(string(pids)) {
					if at, _ := os.Readlink("/proc/" + pid + "/cwd"); strings.HasPrefix(at, dir) {
						most = max(most, peak(pid))
					}
				}
			}
		}
	})
	return func() (int, int) {
		close(stop)
		looking.Wait()
		return peak("self"), most
	}
}

// prose is so many bytes of text, otherwise at each seed.
func prose(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 0))
	words := make([]string, 4000)
	for i := range words {
		for range 2 + r.IntN(8) {
			words[i] += string(rune('a' + r.IntN(26)))
		}
	}
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(" \n    ;,(."[r.IntN(9)]) // no "=": a word like api before it would make the next one a secret
	}
	return b.String()[:n]
}

// figures are of one way and of the other, of each run.
type figures struct {
	gate, plain []time.Duration
	own, jailed int // the most of all runs, KiB
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

func (f *figures) report(b *testing.B, bytes float64) {
	gate := median(f.gate).Seconds()
	b.ReportMetric(gate, "gate-s")
	b.ReportMetric(median(f.plain).Seconds(), "plain-s")
	b.ReportMetric(float64(f.own)/1024, "gate-MiB")
	b.ReportMetric(float64(f.jailed)/1024, "jail-MiB")
	if bytes > 0 {
		b.ReportMetric(bytes/gate/1e6, "MB/s")
	}
	b.Logf("by the gate %v, by git alone %v", f.gate, f.plain)
}

// timed is how long something takes.
func timed(do func()) time.Duration {
	began := time.Now()
	do()
	return time.Since(began)
}

// BenchmarkPush pushes text, by the gate and by git itself to the same server: 200 MiB in files of one, or 4.
func BenchmarkPush(b *testing.B) {
	size := long.Rounds(4, 200)
	w := newWorld(b, gitgate.Policy{})
	other := bare(b)
	direct := w.server.direct(other, w.agent)
	dir := w.dir
	var f figures
	for i := range b.N {
		for file := range size {
			w.agent.write(fmt.Sprintf("d%d/%d.txt", i, file), prose(uint64(i*size+file), 1<<20))
		}
		w.agent.git("add", "-A")
		w.agent.git("commit", "-q", "-m", "much")
		end := peaks(dir)
		f.gate = append(f.gate, timed(func() { w.agent.git("push", "-q", "origin", "HEAD") }))
		own, jailed := end()
		f.own, f.jailed = max(f.own, own), max(f.jailed, jailed)
		f.plain = append(f.plain, timed(func() { w.agent.git("push", "-q", direct, "HEAD:main") }))
	}
	f.report(b, float64(size)*(1<<20))
}

// BenchmarkClone clones for the first time, by the gate and by git itself from the same server: 100,000 objects, or 2,000.
func BenchmarkClone(b *testing.B) {
	objects := long.Rounds(2_000, 100_000)
	s, up := newServer(b), bare(b)
	var in strings.Builder
	in.WriteString("commit refs/heads/main\ncommitter A <a@b.example> 0 +0000\ndata 4\nmany\n")
	for i := range objects * 99 / 100 { // and the trees that they are in
		text := prose(uint64(i), 200)
		fmt.Fprintf(&in, "M 100644 inline d%d/f%d\ndata %d\n%s\n", i%(objects/100), i, len(text), text)
	}
	out, err := up.tryIn(in.String(), "fast-import", "--quiet", "--force")
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	var f figures
	for range b.N {
		w := &world{t: b, server: s, up: up}
		w.serve(sshRemote(b, s, up, gitgate.Policy{}))
		end := peaks(w.dir)
		f.gate = append(f.gate, timed(func() { w.clone("first") }))
		own, jailed := end()
		f.own, f.jailed = max(f.own, own), max(f.jailed, jailed)
		r := &repo{t: b, dir: b.TempDir()}
		url := s.direct(up, r)
		f.plain = append(f.plain, timed(func() { r.git("clone", "-q", url, "plain") }))
	}
	f.report(b, 0)
}
