package backendtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// testLimits runs into each limit that the wall says it keeps: what did so is
// told why, and the instance goes on unless Options say otherwise.
func testLimits(t *testing.T, s *suite) {
	w := s.open(t)
	for _, tt := range []struct {
		limit string
		test  func(*testing.T, *world)
	}{
		{sandbox.LimitMemory, limitMemory},
		{sandbox.LimitPIDs, limitPIDs},
		{sandbox.LimitCPUs, limitCPUs},
		{sandbox.LimitDisk, limitDisk},
		{sandbox.LimitInodes, limitInodes},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			list, err := w.Check(t.Context(), w.record().Spec)
			must(t, err)
			for _, e := range list {
				if e.Promise == tt.limit && !e.Enforced {
					t.Skipf("not kept on this machine, as the wall says: %s", e.Reason)
				}
			}
			tt.test(t, w)
		})
	}
	t.Run("shared-memory", func(t *testing.T) { sharedMemory(t, w) })
	t.Run("memory-of-a-command", func(t *testing.T) { memoryOfCommand(t, w) })
	t.Run("least", func(t *testing.T) { leastLimits(t, w) })
}

// leastPIDs are what ordinary commands need: fewer hold as well.
const leastPIDs = 8

// leastLimits: with the least that a Spec may ask for, ordinary commands run.
// The wall's own need is not counted.
func leastLimits(t *testing.T, w *world) {
	for _, memory := range []int64{sandbox.MinMemory, 32 << 20} {
		b := w.begin(t, readOnly, func(sb *sandbox.Sandbox) {
			sb.Spec.Limits.Memory, sb.Spec.Limits.PIDs, sb.Spec.Limits.CPUs = memory, leastPIDs, sandbox.MinCPUs
		})
		b.says(t, "seq 1 3 | sort -r | head -1; git --version >/dev/null && head -c 8M /dev/zero >/tmp/f && wc -c </tmp/f", "3\n8388608\n")
		if got := b.run(t, argv("/bin/sh", "-lc", "echo $((6*7))")).stdout; got != "42\n" {
			t.Errorf("a login shell in %d bytes: %q", memory, got)
		}
	}
}

// hog takes megabytes of memory and keeps them until it has all.
func hog(megabytes int) *guestv1.Command {
	return argv("python3", "-c", fmt.Sprintf("x = [bytearray(b'x' * (1 << 20)) for _ in range(%d)]; print(len(x))", megabytes))
}

func limitMemory(t *testing.T, w *world) {
	b := w.begin(t, func(sb *sandbox.Sandbox) { sb.Spec.Limits.Memory = 192 << 20 })
	b.sh(t, "", "echo kept > /workspace/f")
	if e := b.run(t, hog(100)); e.stdout != "100\n" {
		t.Fatalf("within the limit: %+v", e)
	}
	wait := waiting(t, w, b.id)
	e := b.begin(t, hog(2000)).orGone()
	if e.exit != nil && (e.exit.GetCode() != 137 || e.stdout != "") {
		t.Errorf("a hog ended by %v with %q", e.exit, e.stdout)
	}
	if !w.s.MemoryEndsInstance {
		if got := e.exit.GetReason(); got != guestv1.Reason_REASON_OUT_OF_MEMORY {
			t.Errorf("a hog ended by %v", e.exit)
		}
		wantAlive(t, w, b.id, true)
		b.says(t, "cat /workspace/f", "kept\n")
		return
	}
	if got := <-wait; got.err != nil || got.reason != sandbox.EndOutOfMemory {
		t.Errorf("Wait = %q, %v, want %q", got.reason, got.err, sandbox.EndOutOfMemory)
	}
	wantAlive(t, w, b.id, false)
	w.mustStop(t, b.id)
	w.restart(t, b.sb).says(t, "cat /workspace/f", "kept\n")
}

// memoryOfCommand holds one command to less than the instance has: it ends with all
// that it started, and nothing else does.
func memoryOfCommand(t *testing.T, w *world) {
	b := w.begin(t)
	other := b.begin(t, shell("echo up; exec sleep 1000"))
	other.awaits("up\n")
	greedy := argv("sh", "-c", `python3 -c 'import time
x = []
while True:
    x.append(bytearray(b"x" * (1 << 20))); time.sleep(0.005)' & wait; echo survived`)
	greedy.MemoryBytes = 64 << 20
	if e := b.run(t, greedy); e.exit.GetReason() != guestv1.Reason_REASON_OUT_OF_MEMORY || e.exit.GetCode() != 137 || e.stdout != "" {
		t.Errorf("a greedy command ended by %v with %q", e.exit, e.stdout)
	}
	modest := hog(20)
	modest.MemoryBytes = 200 << 20
	if e := b.run(t, modest); e.stdout != "20\n" {
		t.Errorf("a modest one: %+v", e)
	}
	b.says(t, "pgrep -x sleep | wc -l", "1\n")
}

// orGone is end for a command whose instance may go with it.
func (r *running) orGone() ended {
	for r.next() {
	}
	return ended{stdout: r.out.String(), stderr: r.errs.String(), exit: r.exit}
}

func limitPIDs(t *testing.T, w *world) {
	b := w.begin(t, func(sb *sandbox.Sandbox) { sb.Spec.Limits.PIDs = 64 })
	spawn := func(n int) ended {
		return b.run(t, shell(fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 7077 & i=$((i+1)); done; echo all", n)))
	}
	if e := spawn(30); e.stdout != "all\n" || len(e.exit.GetLimits()) > 0 {
		t.Fatalf("within the limit: %+v", e)
	}
	// Each is a shell until it has executed sleep.
	const count = `for i in $(seq 200); do n=$(pgrep -fc '^sleep 7077'); [ "$n" = 30 ] && break; sleep 0.05; done; echo $n`
	if got := strings.TrimSpace(b.sh(t, "", count)); got != "30" {
		t.Errorf("%s processes live, want 30", got)
	}
	b.sh(t, "", "pkill -f '^sleep 7077'")
	e := spawn(500)
	if e.stdout == "all\n" || !slices.Contains(e.exit.GetLimits(), "pids") {
		t.Errorf("beyond the limit: %q, %v", e.stdout, e.exit)
	}
	bomb := shell("b() { b | b & }; b; sleep 0.3")
	bomb.TimeoutMs = 5000
	b.run(t, bomb)
	// Threads count as well.
	e = b.run(t, argv("python3", "-c", "import threading,time\nfor i in range(500): threading.Thread(target=time.sleep, args=(7,), daemon=True).start()\nprint('all')"))
	if e.stdout == "all\n" {
		t.Error("500 threads were started in an instance of 64")
	}
	until(t, "the instance goes on", func() bool {
		r, err := b.launch(t, shell("echo on"))
		return err == nil && r.end().stdout == "on\n"
	})
}

// burn keeps two processors busy.
const burn = "(while :; do :; done) & while :; do :; done"

// limitCPUs counts the processor time that a busy instance takes.
func limitCPUs(t *testing.T, w *world) {
	const (
		share = 0.25
		most  = 1.5 * share // it is accounted in slices
	)
	taken := func(id string) float64 { // of one processor
		before, from := cpuTime(id), time.Now()
		<-time.After(2 * time.Second) // or later: a busy machine wakes us when it can
		after, took := cpuTime(id), time.Since(from)
		return (after - before).Seconds() / took.Seconds()
	}
	slow := w.begin(t, func(sb *sandbox.Sandbox) { sb.Spec.Limits.CPUs = share })
	slow.begin(t, shell(burn))
	if got := taken(slow.id); got > most || got == 0 {
		t.Errorf("an instance with %v processors took %.2f", share, got)
	}
	held := throttled(slow.id)
	w.mustStop(t, slow.id)
	fast := w.begin(t)
	fast.begin(t, shell(burn))
	for range 10 {
		if taken(fast.id) > most {
			return
		}
	}
	// A machine that has too much to do gives it no more: its limit must then
	// not be why.
	if n := throttled(fast.id); held == 0 || n > 0 {
		t.Errorf("an instance with more processors takes no more; it was held back %d times, the other %d times", n, held)
	}
}

// throttled is how often the kernel has held an instance back for it to keep to its
// processors.
func throttled(id string) (times int) {
	for _, dir := range groups(id) {
		b, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		for line := range strings.Lines(string(b)) {
			if n, ok := strings.CutPrefix(line, "nr_throttled "); ok {
				i, _ := strconv.Atoi(strings.TrimSpace(n))
				times += i
			}
		}
	}
	return times
}

func limitDisk(t *testing.T, w *world) {
	b := w.begin(t, func(sb *sandbox.Sandbox) { sb.Spec.Limits.Disk, sb.Spec.Limits.Inodes = 48<<20, 5000 })
	for _, dir := range []string{"/workspace", "/home/user", "/tmp"} {
		if e := b.run(t, shell("head -c 20000000 /dev/zero > "+dir+"/fill")); e.exit.GetCode() != 0 {
			t.Fatalf("%s, within the limit: %+v", dir, e)
		}
		e := b.run(t, shell("cat /dev/zero > "+dir+"/fill"))
		if e.exit.GetCode() == 0 || !slices.Contains(e.exit.GetLimits(), "disk") || !strings.Contains(e.stderr, "space") {
			t.Errorf("%s, beyond the limit: %+v", dir, e)
		}
		status, _ := b.request(t, http.MethodPost, "", dir+"/more", strings.NewReader(strings.Repeat("x", 4<<20)))
		if status == http.StatusOK {
			t.Errorf("%s: a file was written onto a full disk", dir)
		}
		b.says(t, "rm -f "+dir+"/fill "+dir+"/more; echo x > "+dir+"/f && cat "+dir+"/f", "x\n")
	}
	// Full over a stop and a start, and no worse for it.
	b.run(t, shell("cat /dev/zero > /workspace/fill"))
	w.mustStop(t, b.id)
	b = w.restart(t, b.sb)
	b.says(t, "rm /workspace/fill; echo x > /workspace/f && cat /workspace/f", "x\n")
}

func limitInodes(t *testing.T, w *world) {
	b := w.begin(t, func(sb *sandbox.Sandbox) { sb.Spec.Limits.Inodes = 2000 })
	fill := func(n int) ended {
		return b.run(t, argv("python3", "-c", fmt.Sprintf("import os\nos.makedirs('/workspace/d')\nos.chdir('/workspace/d')\nfor i in range(%d): open(str(i), 'w').close()\nprint('all')", n)))
	}
	if e := fill(1000); e.stdout != "all\n" {
		t.Fatalf("within the limit: %+v", e)
	}
	b.sh(t, "", "rm -r /workspace/d")
	if e := fill(4000); e.stdout == "all\n" || !slices.Contains(e.exit.GetLimits(), "inodes") {
		t.Errorf("beyond the limit: %q, %v", e.stdout, e.exit)
	}
	b.says(t, "rm -r /workspace/d; echo x > /workspace/f && cat /workspace/f", "x\n")
}

// sharedMemory wants what is not on the disk to be bounded too.
func sharedMemory(t *testing.T, w *world) {
	b := w.begin(t)
	e := b.run(t, shell("head -c 1000000 /dev/zero > /dev/shm/f && echo fits; head -c 400000000 /dev/zero > /dev/shm/f && echo all"))
	if e.stdout != "fits\n" {
		t.Errorf("got %q, %v", e.stdout, e.exit)
	}
	b.says(t, "rm -f /dev/shm/f; echo on", "on\n")
}
