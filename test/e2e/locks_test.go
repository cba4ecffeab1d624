package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/long"
)

// locker is a program of the host's, or of a sandbox, that is told in lines what to do.
type locker struct {
	t    *testing.T
	name string
	in   io.WriteCloser
	out  *bufio.Scanner
	cmd  *exec.Cmd
}

// tell sends a line, and does not wait for what comes of it.
func (l *locker) tell(line string) {
	l.t.Helper()
	if _, err := io.WriteString(l.in, line+"\n"); err != nil {
		l.t.Fatalf("%s: %v", l.name, err)
	}
}

// told is the next answer.
func (l *locker) told() string {
	l.t.Helper()
	if !l.out.Scan() {
		l.t.Fatalf("%s has ended: %v", l.name, l.out.Err())
	}
	return l.out.Text()
}

// want tells a line, and wants an answer.
func (l *locker) want(answer, line string) {
	l.t.Helper()
	l.tell(line)
	if got := l.told(); got != answer {
		l.t.Errorf("%s: %s = %s, want %s", l.name, line, got, answer)
	}
}

// shares is a directory that sandboxes and the host have in common.
type shares struct {
	t     *testing.T
	h     *home
	dir   string            // on the host
	boxes map[string]string // of sandboxes, where they have it
}

const inShare = "/mnt/shared"

func newShares(t *testing.T, h *home) *shares {
	t.Helper()
	dir := filepath.Join(h.dir, "shared")
	if err := os.CopyFS(dir, os.DirFS("testdata/locks")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	return &shares{t: t, h: h, dir: dir, boxes: map[string]string{}}
}

// box makes a sandbox in which the directory is, by a mount or as the workspace.
func (s *shares) box(name, wall string, args ...string) {
	s.t.Helper()
	at := inShare
	if len(args) == 0 {
		args = []string{"--mount", s.dir + ":" + at}
	} else if args[0] == "--workspace" {
		at = "/workspace"
	}
	s.h.create(append([]string{"--name", name, "--isolation", wall}, args...)...)
	s.boxes[name] = at
}

// start runs a program of the directory, with a file of it, in a sandbox or on the host.
func (s *shares) start(box, program, file string, args ...string) *locker {
	s.t.Helper()
	at, inside := s.boxes[box]
	if !inside {
		at = s.dir
	}
	argv := append([]string{"python3", at + "/" + program, filepath.Join(at, file)}, args...)
	l, start := &locker{t: s.t, name: box}, (*exec.Cmd).Start
	if inside {
		start = s.h.start
		l.cmd = s.h.command(context.Background(), append([]string{"exec", "-i", box, "--"}, argv...)...)
	} else {
		l.cmd = exec.Command(argv[0], argv[1:]...)
	}
	l.cmd.Stderr = os.Stderr
	var err error
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	l.out = bufio.NewScanner(out)
	if err := start(l.cmd); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		l.in.Close()
		_ = l.cmd.Wait()
	})
	if got := l.told(); got != "ready" {
		s.t.Fatalf("%s: %s", box, got)
	}
	return l
}

// TestLocks: what one has locked of a shared file, nobody else can lock, on whichever side
// of whichever wall.
func TestLocks(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := newShares(t, h)
	s.box("one", "gvisor")
	s.box("two", "gvisor", "--workspace", s.dir+":rw")
	s.box("native", "process")
	s.box("reads", "gvisor", "--mount", s.dir+":"+inShare+":ro")
	for _, call := range []string{"flock", "posix", "ofd"} {
		t.Run(call, func(t *testing.T) {
			s.t = t
			var all []*locker
			for _, where := range []string{"host", "one", "two", "native"} {
				all = append(all, s.start(where, "locks.py", "file"))
			}
			all = append(all, s.start("one", "locks.py", "file"))
			for i, holder := range all {
				exclusive(call, holder, append(all[:i:i], all[i+1:]...))
			}
			together(call, all)
			waiting(t, call, all)
		})
	}
	t.Run("ranges", func(t *testing.T) {
		s.t = t
		lockRanges(s)
	})
	t.Run("reads", func(t *testing.T) {
		s.t = t
		lockReading(s)
	})
	t.Run("many", func(t *testing.T) {
		s.t = t
		host, one := s.start("host", "locks.py", "file"), s.start("one", "locks.py", "file")
		one.want("ENOLCK", "posix many 0 20000")
		host.want("EAGAIN", "posix ex 8000 1")
		one.want("ok", "posix un")
		host.want("ok", "posix ex")
		host.want("ok", "posix un")
		one.want("ok", "posix many 0 4000")
		one.tell("die")
		host.want("ok", "posix wait")
	})
	t.Run("directory", func(t *testing.T) {
		s.t = t
		s.start("one", "locks.py", ".").want("ENOLCK", "flock ex 0 0 r")
		s.start("one", "locks.py", "../../tmp").want("ok", "flock ex 0 0 r")
		s.start("native", "locks.py", ".").want("ok", "flock ex 0 0 r")
	})
}

// TestLocksWithoutRoot: no rights of root's are needed for it, and none of the host's user are
// left out.
func TestLocksWithoutRoot(t *testing.T) {
	t.Parallel()
	h := newWorld(t).ordinaryHome(carboy)
	s := newShares(t, h)
	if err := ownAll(s.dir); err != nil {
		t.Fatal(err)
	}
	s.box("one", "gvisor")
	s.box("two", "gvisor", "--workspace", s.dir+":rw")
	all := []*locker{s.start("host", "locks.py", "file"), s.start("one", "locks.py", "file"), s.start("two", "locks.py", "file")}
	for _, call := range []string{"flock", "posix"} {
		for i, holder := range all {
			exclusive(call, holder, append(all[:i:i], all[i+1:]...))
		}
	}
	writeTogether(s, "wal", 50, []string{"one", "two"})
}

// exclusive has one hold a lock that leaves others none, and then one that lets them read.
func exclusive(call string, holder *locker, others []*locker) {
	holder.t.Helper()
	holder.want("ok", call+" ex")
	for _, o := range others {
		o.want("EAGAIN", call+" ex")
		o.want("EAGAIN", call+" sh")
		if call != "flock" {
			o.want("ex", call+" who")
		}
	}
	holder.want("ok", call+" sh")
	for _, o := range others {
		o.want("EAGAIN", call+" ex")
		o.want("ok", call+" sh")
		o.want("ok", call+" un")
	}
	holder.want("ok", call+" un")
}

// together has all hold one lock, and let go of it one after another.
func together(call string, all []*locker) {
	for _, l := range all {
		l.want("ok", call+" sh")
	}
	last := all[len(all)-1]
	for _, l := range all[:len(all)-1] {
		l.want("ok", call+" un")
		l.want("EAGAIN", call+" ex")
	}
	last.want("ok", call+" un")
	all[0].want("ok", call+" ex")
	all[0].want("ok", call+" un")
}

// waiting has each wait for one who is killed, which releases what it holds.
func waiting(t *testing.T, call string, all []*locker) {
	for i, l := range all {
		l.want("ok", call+" ex")
		if i+1 == len(all) {
			break
		}
		next := all[i+1]
		next.want("EAGAIN", call+" ex")
		next.tell(call + " wait")
		l.tell("die")
		if got := next.told(); got != "ok" {
			t.Errorf("%s, who waited for %s: %s", next.name, l.name, got)
		}
	}
}

// lockRanges: of a file that two programs of a sandbox have parts of, the host can have the
// rest, and what one of them loses by its end.
func lockRanges(s *shares) {
	host, a, b := s.start("host", "locks.py", "file"), s.start("one", "locks.py", "file"), s.start("one", "locks.py", "file")
	a.want("ok", "posix ex 0 10")
	b.want("ok", "posix ex 20 10")
	host.want("ok", "posix ex 10 10")
	host.want("EAGAIN", "posix ex 25 1")
	a.want("ok", "posix un 0 5")
	host.want("ok", "posix ex 0 5")
	host.want("EAGAIN", "posix ex 5 1")
	b.want("EAGAIN", "posix ex 0 1")
	a.tell("die")
	host.want("ok", "posix wait 5 5")
	host.want("EAGAIN", "posix ex 29 1")
	b.want("ok", "close un")
	host.want("ok", "posix wait 20 10")
	host.want("ok", "posix un")

	// One who read goes on reading when another opens the file to write.
	c := s.start("one", "locks.py", "file")
	c.want("ok", "posix sh 0 10 r")
	b.want("ok", "posix ex 20 10")
	host.want("EAGAIN", "posix ex 0 10")
	host.want("ok", "posix sh 0 10")
	host.want("EAGAIN", "posix ex 20 10")
	b.want("EAGAIN", "posix ex 0 10")
	c.want("ok", "posix un 0 0 r")
}

// lockReading: who may only read keeps nobody waiting but those of its own sandbox, where who may
// write does.
func lockReading(s *shares) {
	host, reads, beside := s.start("host", "locks.py", "file"), s.start("reads", "locks.py", "file"), s.start("reads", "locks.py", "file")
	reads.want("ok", "flock ex 0 0 r")
	reads.want("ok", "posix sh 0 0 r")
	reads.want("ok", "ofd sh 0 0 r")
	beside.want("EAGAIN", "flock sh 0 0 r")
	writes := s.start("one", "locks.py", "file")
	for _, l := range []*locker{host, writes} {
		for _, call := range []string{"flock", "posix", "ofd"} {
			l.want("ok", call+" ex")
			l.want("ok", call+" un")
		}
	}
	writes.want("ok", "flock ex 0 0 r")
	writes.want("ok", "posix sh 0 0 r")
	host.want("EAGAIN", "flock ex")
	host.want("EAGAIN", "posix ex")
}

// TestPauseWithLock: processes of which one has a lock that others see are not kept, and that is said;
// those that have let go of it are.
func TestPauseWithLock(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := newShares(t, h)
	s.box("one", "gvisor")
	for _, tt := range []struct{ name, do, kept, why string }{
		{"released", "'flock ex' 'posix ex' 'flock un' 'posix un'", "1", "went on from its memory"},
		{"held", "'posix sh 0 1'", "0", `a program has a lock on "file"`},
		{"held-by-flock", "'flock sh'", "0", `a program has a lock on "file"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.ok("exec", "one", "--", "sh", "-c", "rm -f /tmp/out; cd "+inShare+"; nohup python3 locks.py file "+tt.do+
				" >/tmp/out 2>&1 & until grep -q ready /tmp/out; do sleep 0.1; done")
			h.ok("pause", "one")
			h.ok("start", "one")
			if got := strings.TrimSpace(h.ok("exec", "one", "--", "sh", "-c", "pgrep -c python3 || true")); got != tt.kept {
				t.Errorf("there are %s, want %s", got, tt.kept)
			}
			if log := h.ok("logs", "one"); !strings.Contains(log, tt.why) {
				t.Errorf("it is not said that %s:\n%s", tt.why, log)
			}
			s.t = t
			host, one := s.start("host", "locks.py", "file"), s.start("one", "locks.py", "file")
			for _, call := range []string{"posix", "flock"} {
				one.want("ok", call+" ex")
				host.want("EAGAIN", call+" ex")
			}
			one.tell("die")
			host.want("ok", "posix wait")
			host.want("ok", "flock wait")
			h.run(nil, "exec", "one", "--", "pkill", "python3")
		})
	}
}

// TestLocksInside: without what passes them on, they hold inside alone.
func TestLocksInside(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("CARBOY_WEAK_BIN")
	if bin == "" {
		t.Skip("CARBOY_WEAK_BIN is not set: make weak builds it")
	}
	h := newHome(t, "CARBOY_WEAKEN="+string(weak.LocksInside), "CARBOY_WEAK_GUEST="+os.Getenv("CARBOY_WEAK_GUEST"))
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
	s := newShares(t, h)
	s.box("one", "gvisor")
	host, one := s.start("host", "locks.py", "file"), s.start("one", "locks.py", "file")
	for _, call := range []string{"flock", "posix", "ofd"} {
		host.want("ok", call+" ex")
		one.want("ok", call+" ex")
		host.want("ok", call+" un")
		one.want("ok", call+" un")
	}
}

// TestSharedDatabase has sandboxes and the host write to one SQLite database at once, with
// either of its ways to undo.
func TestSharedDatabase(t *testing.T) {
	rows := long.Rounds(200, 20_000) // of each of four
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			s := newShares(t, h)
			s.box("one", "gvisor")
			s.box("two", "gvisor")
			s.box("native", "process")
			writeTogether(s, mode, rows, []string{"host", "one", "two", "native"})
		})
	}
	t.Run("volume", func(t *testing.T) {
		t.Parallel()
		h := newHome(t)
		s := newShares(t, h)
		h.ok("volume", "create", "data")
		for _, name := range []string{"one", "two"} {
			s.box(name, "gvisor", "--volume", "data:"+inShare)
		}
		s.box("native", "process", "--volume", "data:"+inShare)
		for _, name := range []string{"rows.py", "check.py"} {
			h.ok("cp", filepath.Join(s.dir, name), "one:"+inShare+"/"+name)
		}
		writeTogether(s, "wal", rows, []string{"native", "one", "two"})
	})
}

// writeTogether has each write rows to one database, which the first of them makes and looks at
// when all are done.
func writeTogether(s *shares, mode string, rows int, who []string) {
	s.t.Helper()
	check := func(args ...string) string {
		s.t.Helper()
		if at, ok := s.boxes[who[0]]; ok {
			return s.h.ok(append([]string{"exec", who[0], "--", "python3", at + "/check.py", at + "/db", mode}, args...)...)
		}
		out, err := exec.Command("python3", append([]string{s.dir + "/check.py", s.dir + "/db", mode}, args...)...).Output()
		if err != nil {
			s.t.Fatal(err)
		}
		return string(out)
	}
	check("make")
	var all []*locker
	for _, name := range who {
		all = append(all, s.start(name, "rows.py", "db", mode, name, fmt.Sprint(rows)))
	}
	for _, l := range all {
		l.tell("go")
	}
	for _, l := range all {
		if got := l.told(); got != "done" {
			s.t.Errorf("%s: %s", l.name, got)
		}
	}
	if got, want := strings.TrimSpace(check()), fmt.Sprintf("%d %d ok", len(who)*rows, len(who)*rows); got != want {
		s.t.Errorf("there is %q, want %q", got, want)
	}
}
