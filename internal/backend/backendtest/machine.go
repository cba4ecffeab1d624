package backendtest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// belief is how somebody finds out how large the machine is: the script prints a number.
type belief struct{ who, program, script string }

// processorsOf are ways to count processors.
var processorsOf = []belief{
	{"nproc", "nproc", "nproc"},
	{"the C library", "getconf", "getconf _NPROCESSORS_ONLN"},
	{"/proc/cpuinfo", "grep", "grep -c ^processor /proc/cpuinfo"},
	{"/proc/stat", "grep", "grep -c '^cpu[0-9]' /proc/stat"},
	{"python's cpu_count", "python3", "python3 -c 'import os; print(os.cpu_count())'"},
	{"python's affinity", "python3", "python3 -c 'import os; print(len(os.sched_getaffinity(0)))'"},
	{"node's cpus", "node", `node -p 'require("os").cpus().length'`},
	{"node's parallelism", "node", `node -p 'const os = require("os"); os.availableParallelism ? os.availableParallelism() : os.cpus().length'`},
	{"perl", "perl", "perl -MPOSIX -e 'print POSIX::sysconf(84)'"},
	{"java", "java", "java -Xlog:os+container=off -XX:+UseParallelGC -XX:+PrintFlagsFinal -version 2>/dev/null | awk '/ ParallelGCThreads /{print $4}'"},
	{"go", "/tmp/gomaxprocs", "/tmp/gomaxprocs"},
}

// memoryOf are ways to learn how many MiB of memory there are.
var memoryOf = []belief{
	{"/proc/meminfo", "awk", "awk '/^MemTotal/{print int($2/1024)}' /proc/meminfo"},
	{"/sys/fs/cgroup", "cat", "echo $(($(cat /sys/fs/cgroup/memory.max) / 1048576))"},
	{"node's total", "node", `node -p 'require("os").totalmem() / 1048576 | 0'`},
	{"node's limit", "node", `node -p 'process.constrainedMemory ? process.constrainedMemory() / 1048576 | 0 : 1'`},
	{"java's heap", "java", "java -XX:+PrintFlagsFinal -version 2>/dev/null | awk '/ MaxHeapSize /{print int($4/1048576)}'"},
}

// usesMemory takes 200 MiB, and waits until there are that much less.
const usesMemory = `python3 -c '
import time
x = b"x" * (200 << 20)
for i in range(1200):
    left = [int(l.split()[1]) for l in open("/proc/meminfo") if l.startswith("MemAvailable")][0]
    if left < 330 << 10:
        print("less")
        break
    time.sleep(0.05)'`

// testMachine: programs believe that the machine has what their limits leave them, and what
// tells them so is not theirs to change.
func testMachine(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t, func(sb *sandbox.Sandbox) {
		sb.Spec.Limits.CPUs, sb.Spec.Limits.Memory, sb.Spec.Limits.PIDs = 1, 512<<20, 200
	})
	for _, e := range b.enforced {
		if e.Promise == sandbox.LimitMemory && !e.Enforced {
			t.Skipf("limits are not kept on this machine, as the wall says: %s", e.Reason)
		}
	}
	if status, text := b.request(t, http.MethodPost, "", "/tmp/gomaxprocs", bytes.NewReader(gomaxprocs(t))); status != http.StatusOK {
		t.Fatalf("send a program: %d %s", status, text)
	}
	b.sh(t, "", "chmod +x /tmp/gomaxprocs")
	for _, one := range processorsOf {
		b.believes(t, one, 1, 1)
	}
	for _, one := range memoryOf {
		b.believes(t, one, 1, 512)
	}
	b.says(t, "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/pids.max", "100000 100000\n200\n")
	b.says(t, `[ $(cat /sys/fs/cgroup/memory.current) -gt 0 ] && [ $(cat /sys/fs/cgroup/pids.current) -gt 0 ] && echo counted`, "counted\n")
	b.says(t, usesMemory, "less\n")
	for _, user := range s.users() {
		b.cantChange(t, user)
	}
	b.follows(t, w)
}

// believes wants a number between least and most, of whom this machine has.
func (b *instance) believes(t *testing.T, one belief, least, most int) {
	t.Helper()
	script := fmt.Sprintf("command -v %s >/dev/null || { echo absent; exit; }; %s", one.program, one.script)
	got := strings.TrimSpace(b.sh(t, "", script))
	if got == "absent" {
		t.Logf("%s: not on this machine", one.who)
		return
	}
	if n, err := strconv.Atoi(got); err != nil || n < least || n > most {
		t.Errorf("%s believes in %q, want from %d to %d", one.who, got, least, most)
	} else {
		t.Logf("%s: %d", one.who, n)
	}
}

// cantChange has a user try to change what all commands are told.
func (b *instance) cantChange(t *testing.T, user string) {
	t.Helper()
	const script = `for f in /proc/meminfo /proc/cpuinfo /proc/stat /sys/devices/system/cpu/online $(find /sys/fs/cgroup -type f | head -200); do
	(echo 1 >"$f") 2>/dev/null && echo "$f was written"; (rm -f "$f") 2>/dev/null && [ ! -e "$f" ] && echo "$f was removed"
done; mkdir /sys/fs/cgroup/x 2>/dev/null && echo made; umount /sys/fs/cgroup 2>/dev/null && echo unmounted
ls /run/carboy; grep ' /run/carboy/' /proc/self/mountinfo; true`
	if got := b.sh(t, user, script); got != "" {
		t.Errorf("as %q: %s", user, got)
	}
}

// follows: programs that start see limits that are changed, and those that run are given
// the processors.
func (b *instance) follows(t *testing.T, w *world) {
	t.Helper()
	old := b.begin(t, shell("echo up; exec sleep 1000"))
	old.awaits("up\n")
	to := b.sb.Spec.Limits
	to.CPUs, to.Memory = 1.5, 640<<20
	if out := w.Capabilities().Resize.Resize(t.Context(), b.sb, to); len(out.Later) > 0 {
		t.Fatalf("Resize leaves %v", out.Later)
	}
	want := min(runtime.NumCPU(), 2)
	b.believes(t, processorsOf[0], want, want)
	b.believes(t, memoryOf[1], 640, 640)
	b.says(t, "cat /sys/fs/cgroup/cpu.max", "150000 100000\n")
	const affinity = `python3 -c 'import os,subprocess; print(len(os.sched_getaffinity(int(subprocess.check_output(["pgrep", "-x", "sleep"])))))'`
	b.says(t, affinity, strconv.Itoa(want)+"\n")
}

// gomaxprocs is a program that prints what Go's runtime believes in.
func gomaxprocs(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nimport (\n\t\"os\"\n\t\"runtime\"\n\t\"strconv\"\n)\n\nfunc main() { os.Stdout.WriteString(strconv.Itoa(runtime.GOMAXPROCS(0))) }\n"), 0o600))
	cmd := exec.Command("go", "build", "-o", "main", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GO111MODULE=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a Go program: %v\n%s", err, out)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "main"))
	must(t, err)
	return raw
}
