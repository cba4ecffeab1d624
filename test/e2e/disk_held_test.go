package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/long"
)

const (
	smallDisk   = 200       // MiB of the state's disk
	blockBytes  = 256 << 10 // of each block that a writer writes
	roundBefore = 14 << 20  // that a writer can write before it is held
	roundsEach  = 4         // of one sandbox: its disk has what it wrote before, and it writes that again first
)

// leave makes the state's disk so full that left bytes can be written.
func (h *home) leave(left int) (free func()) {
	h.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(h.dir+"/state", &st); err != nil {
		h.t.Fatal(err)
	}
	name := filepath.Join(h.dir, "state", "filler")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	if n := int64(st.Bavail)*st.Bsize - int64(left); n > 0 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
			h.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			h.t.Error(err)
		}
	}
}

// mishaps are things that happen while a writer is held, or just before.
var mishaps = []struct {
	name string
	soon bool // while it writes still
	ends bool // it ends the writer
	do   func(t *testing.T, h *home, name, wall string)
}{
	{"nothing", false, false, func(*testing.T, *home, string, string) {}},
	{"the daemon is killed", false, false, func(_ *testing.T, h *home, _, _ string) { h.killDaemon() }},
	{"others take the rest", false, false, func(_ *testing.T, h *home, _, _ string) { h.takeAll() }},
	{"others take all of it at once", true, false, func(_ *testing.T, h *home, _, _ string) { h.takeAll() }},
	{"a stop", false, true, func(_ *testing.T, h *home, name, _ string) { // it ends now where what is kept free has room for what waits, or later
		if r := h.run(nil, "stop", name); r.code != 0 && !strings.Contains(r.stderr, "it ends when what it wrote last has room") {
			h.t.Errorf("stop: %+v", r)
		}
	}},
	{"a snapshot", false, false, func(t *testing.T, h *home, name, _ string) { refusedFull(t, h, h.run(nil, "snapshot", "create", name)) }},
	{"a pause", false, false, func(t *testing.T, h *home, name, _ string) { refusedFull(t, h, h.run(nil, "pause", name)) }},
	{"a create", false, false, func(t *testing.T, h *home, _, wall string) {
		refusedFull(t, h, h.run(nil, "create", "--isolation", wall, "--name", "late"))
	}},
	{"a start", false, false, func(t *testing.T, h *home, _, _ string) { refusedFull(t, h, h.run(nil, "start", "asleep")) }},
	{"who holds its disk is killed", false, false, func(t *testing.T, h *home, _, _ string) {
		if newerKernel(t) {
			h.killHolder()
		}
	}},
	{"who holds its disk is killed while it writes, and others take all", true, false, func(t *testing.T, h *home, _, _ string) {
		if newerKernel(t) {
			h.killHolder()
		}
		h.takeAll()
	}},
	{"the daemon is killed while it writes, and others take all", true, false, func(_ *testing.T, h *home, _, _ string) {
		h.killDaemon()
		h.takeAll()
	}},
}

// takeAll takes what room there is, as a process that cares for nobody. freeAll gives it back.
func (h *home) takeAll() {
	h.t.Helper()
	name := filepath.Join(h.dir, "state", "taken")
	if err := os.WriteFile(name, make([]byte, 64<<20), 0o600); err == nil {
		h.t.Error("the disk had room for 64 MiB while a writer was held")
	}
}

func (h *home) freeAll() { _ = os.Remove(filepath.Join(h.dir, "state", "taken")) }

// refusedFull wants an error that says which disk is full.
func refusedFull(t *testing.T, h *home, r result) {
	t.Helper()
	if r.code == 0 || !strings.Contains(r.stderr, h.dir+"/state/carboy") || !strings.Contains(r.stderr, "free some space") {
		t.Errorf("with a full disk: exit code %d, %s", r.code, r.stderr)
	}
}

// A writer that fills the host's disk is held, whatever happens meanwhile; it goes on when
// there is room, and nothing that was synced is lost.
func TestDiskFullHoldsWriters(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newDiskHome(t, smallDisk, 40_000)
		h.ok("create", "--isolation", wall, "--name", "asleep", "--disk", "64m")
		h.ok("stop", "asleep")
		for first, rounds := 0, long.Rounds(len(mishaps), 20); first < rounds; first += roundsEach {
			name := h.create("--isolation", wall, "--disk", "1g")
			for round := first; round < min(first+roundsEach, rounds); round++ {
				if long.On() || round%len(wallNames) == slices.Index(wallNames, wall) { // or each behind one wall
					h.fullRound(t, round, name, wall)
				}
			}
			if log := h.ok("logs", name); !strings.Contains(log, "held: the disk of "+h.dir) || !strings.Contains(log, "goes on") {
				t.Errorf("its log says nothing of it:\n%s", log)
			}
			h.ok("rm", "-f", name)
			until(t, func() bool { // its room is there again
				left, err := filepath.Glob(h.dir + "/state/carboy/trash/*/*")
				return err == nil && len(left) == 0
			})
		}
	})
}

func (h *home) fullRound(t *testing.T, round int, name, wall string) {
	t.Helper()
	event := mishaps[round%len(mishaps)]
	free := h.leave(roundBefore)
	w := h.writeBlocks(name)
	if event.soon {
		until(t, func() bool { return w.acked.Load() > 5 })
		event.do(t, h, name, wall)
	}
	until(t, func() bool { return h.heldBy(name) != nil })
	stood := w.acked.Load()
	if !event.soon {
		event.do(t, h, name, wall)
	}
	if event.ends {
		h.freeAll()
		free()
		<-w.done
		h.ok("start", name)
		h.checkRound(t, round, name, w)
		return
	}
	// A new daemon asks first, and a new process that holds the disk says so once it does.
	until(t, func() bool {
		held := h.heldBy(name)
		return held != nil && held.Need > 0 && held.Path == h.dir+"/state/carboy"
	})
	until(t, func() bool { return strings.Contains(h.ok("ls"), "held") })
	h.freeAll()
	free()
	until(t, func() bool { return w.acked.Load() > stood+2 })
	w.end(h, name)
	if round%4 > 1 {
		h.ok("stop", name)
		h.ok("start", name)
	}
	t.Logf("round %d, %s: held at block %d", round, event.name, stood)
	h.checkRound(t, round, name, w)
}

// checkRound compares what a writer wrote, and removes it.
func (h *home) checkRound(t *testing.T, round int, name string, w *writer) {
	t.Helper()
	if wrong := h.wrong(name, w.acked.Load()); wrong != "" {
		t.Fatalf("round %d: of %d blocks that were synced: %s", round, w.acked.Load()+1, wrong)
	}
	t.Logf("round %d: %d blocks were acknowledged", round, w.acked.Load()+1)
	h.ok("exec", name, "--", "sh", "-c", "rm -rf b enough; sync")
}

// A sandbox that is held can be removed, and its room lets another go on.
func TestHeldIsRemoved(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newDiskHome(t, smallDisk, 40_000)
		one, two := h.create("--isolation", wall, "--disk", "1g"), h.create("--isolation", wall, "--disk", "1g")
		free := h.leave(2 * roundBefore)
		defer free()
		first, second := h.writeBlocks(one), h.writeBlocks(two)
		until(t, func() bool { return h.heldBy(one) != nil && h.heldBy(two) != nil })
		h.ok("rm", "-f", one)
		<-first.done
		stood := second.acked.Load()
		until(t, func() bool { return second.acked.Load() > stood+2 })
		second.end(h, two)
		if wrong := h.wrong(two, second.acked.Load()); wrong != "" {
			t.Error(wrong)
		}
	})
}

// What is held is held by us: without that, what a sandbox was told is synced is gone.
func TestDiskFullUnheld(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("CARBOY_WEAK_BIN")
	if bin == "" {
		t.Skip("CARBOY_WEAK_BIN is not set: make weak builds it")
	}
	h := newDiskHome(t, smallDisk, 40_000)
	h.env = append(h.env, "CARBOY_WEAKEN="+string(weak.DiskNotHeld), "CARBOY_WEAK_GUEST="+os.Getenv("CARBOY_WEAK_GUEST"))
	h.start = func(c *exec.Cmd) error {
		c.Path, c.Args[0] = bin, bin
		return c.Start()
	}
	daemon := h.command(context.Background(), "serve") // one that a command starts has an environment of its own
	if err := h.start(daemon); err != nil {
		t.Fatal(err)
	}
	go daemon.Wait() // the home's end stops it
	until(t, func() bool { return h.run(nil, "daemon", "status").code == 0 })
	name := h.create("--isolation", "process", "--disk", "1g")
	free := h.leave(roundBefore)
	out := h.run(nil, "exec", name, "--", "sh", "-c", "head -c 60000000 /dev/zero > f; sync; echo synced $?")
	free()
	if !strings.Contains(out.stdout, "synced 0") {
		t.Logf("sync said: %+v", out)
	}
	h.run(nil, "stop", name)
	h.run(nil, "start", name)
	if got := h.run(nil, "exec", name, "--", "sh", "-c", "test $(stat -c %b f) -ge 117000"); got.code == 0 {
		t.Error("nothing was lost, although nothing was held: the tests above show nothing")
	}
}

// Who waits for a command that is held is told, once when it begins and once when it ends.
func TestHeldIsSaid(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newDiskHome(t, smallDisk, 40_000)
		name := h.create("--isolation", wall, "--disk", "1g")
		free := h.leave(roundBefore)
		cmd := h.command(t.Context(), "exec", "--json", name, "--", "sh", "-c", "head -c 60000000 /dev/zero > f && sync f")
		said, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for lines := bufio.NewScanner(said); lines.Scan(); {
			var note struct{ Note, Reason string }
			if err := json.Unmarshal(lines.Bytes(), &note); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			reasons = append(reasons, note.Reason)
			if note.Reason == "held" {
				if !strings.Contains(note.Note, h.dir+"/state/carboy is full: ") || !strings.Contains(note.Note, "free some space there") {
					t.Errorf("it said %q", note.Note)
				}
				free()
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if got := strings.Join(reasons, " "); got != "held released" {
			t.Errorf("it said %q, want held released", got)
		}
	})
}

// What is kept on a full disk is refused at its beginning, and fails in its middle; nothing
// of it is left.
func TestFullDiskRefuses(t *testing.T) {
	h := newDiskHome(t, smallDisk, 40_000)
	h.ok("volume", "create", "there", "--size", "16m")
	for name, size := range map[string]int{"small": 1 << 10, "large": 60 << 20} {
		if err := os.Mkdir(filepath.Join(h.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(h.dir, name, "f"), bytes.Repeat([]byte("carboy.\n"), size/8), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, "small/Dockerfile"), []byte("FROM base\nRUN true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := h.leave(4 << 20) // which are among what is kept free
	before := h.counts()
	for _, args := range [][]string{
		{"image", "import", "--name", "late", "small"},
		{"volume", "create", "late", "--size", "16m"},
		{"template", "build", "--name", "late", "small"},
	} {
		t.Log(args)
		refusedFull(t, h, h.run(nil, args...))
	}
	free()
	free = h.leave(2 * roundBefore)
	if r := h.run(nil, "image", "import", "--name", "late", "large"); r.code == 0 || !strings.Contains(r.stderr, "full") {
		t.Errorf("an import that finds no room in its middle: %+v", r)
	}
	after := h.settled(before)
	for what, n := range after {
		if n > before[what] {
			t.Errorf("%s: %d before, %d after", what, before[what], n)
		}
	}
	free()
	h.ok("image", "import", "--name", "late", "large")
	h.ok("volume", "create", "late", "--size", "16m")
}
