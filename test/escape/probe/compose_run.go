package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// begun marks the line that says that a sequence is under way.
const begun = "begun"

// scratchRoot is where sequences have directories of their own.
const scratchRoot = "/tmp/composed"

// composer is what the sequences of a process have in common.
type composer struct {
	facts.Plan
	places places
	out    *json.Encoder
}

// sequence is one under way, in a thread of its own.
type sequence struct {
	*composer
	facts.Composition
	rand    *rand.Rand
	scratch string
	root    int      // that it began with, to look names up in
	rooted  []string // what was made its root: see real
	held    []int    // descriptors
	covered []string // targets of mounts of its own
	news    []string // entries that only came to be seen by what was done
	made    map[string]bool
	big     int // bytes written
	next    []facts.Step
}

// composed runs the sequences of one process.
func composed(in io.Reader, out io.Writer) error {
	c := &composer{out: json.NewEncoder(out)}
	if err := json.NewDecoder(in).Decode(&c.Plan); err != nil {
		return err
	}
	unix.Umask(0)
	c.places = enumerate()
	for n := c.From; n < c.From+c.Most; n++ {
		one := facts.Composition{Number: n, Error: begun}
		if err := c.out.Encode(one); err != nil {
			return err
		}
		if len(c.Replay) > 0 {
			one = c.Replay[0]
		}
		one.Error = ""
		if err := c.out.Encode(c.apart(one)); err != nil {
			return err
		}
	}
	return nil
}

// apart runs a sequence in a thread that ends with it, and takes its mounts
// along.
func (c *composer) apart(one facts.Composition) facts.Composition {
	s := &sequence{
		composer: c, Composition: one, rand: source(c.Seed, "sequence", one.Number),
		scratch: fmt.Sprintf("%s/%d-%d", scratchRoot, os.Getuid(), one.Number%8), made: map[string]bool{},
	}
	s.prepare()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread dies
		_ = unix.Unshare(unix.CLONE_NEWNS)
		_ = unix.Unshare(unix.CLONE_FS)
		s.root, _ = unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		s.run()
	}()
	<-done
	_ = unix.Close(s.root)
	for _, fd := range s.held {
		_ = unix.Close(fd)
	}
	s.clean()
	return s.Composition
}

// prepare makes what steps work in. It is the same for each sequence.
func (s *sequence) prepare() {
	_ = os.Mkdir(scratchRoot, 0o777)
	_ = os.Mkdir(s.scratch, 0o755)
	for _, d := range []string{"a", "b", "m", "n", "w", "x"} {
		_ = os.Mkdir(s.scratch+"/"+d, 0o755)
	}
	_ = os.Mkdir(s.scratch+"/a/deep", 0o755)
	_ = os.WriteFile(s.scratch+"/a/file", []byte("a\n"), 0o644)
}

// clean removes the scratch directory, unless something is mounted there that
// would be emptied as well.
func (s *sequence) clean() {
	for _, m := range mounts() {
		if within(m.target, s.scratch) {
			if unix.Unmount(m.target, unix.MNT_DETACH) != nil {
				return
			}
		}
	}
	for _, m := range mounts() {
		if within(m.target, s.scratch) {
			return
		}
	}
	_ = os.RemoveAll(s.scratch)
}

// steps is how many a sequence has at most.
const steps = 14

func (s *sequence) run() {
	if given := s.Steps; len(given) > 0 {
		s.Steps = nil
		for _, st := range given {
			st.Got = ""
			s.take(st)
		}
		return
	}
	for n := 4 + s.rand.IntN(steps-4); n > 0 || len(s.next) > 0; n-- {
		if len(s.next) == 0 {
			s.next = s.choose()
		}
		st := s.next[0]
		s.next = s.next[1:]
		if !s.take(st) {
			return
		}
	}
}

// take takes a step, and looks at what it brought into view. It reports
// whether the sequence may go on: what has reached the host may not.
func (s *sequence) take(st facts.Step) bool {
	if st.Op == "chroot" || st.Op == "pivot" {
		s.rooted = s.opened(cmp.Or(st.A, st.B))
	}
	err := s.do(st)
	if err != nil {
		st.Got = err.Error()
	}
	s.Steps = append(s.Steps, st)
	if err == nil {
		s.look(st)
	}
	return !s.lost()
}

// opened is where a path leads by the root that the sequence began with.
func (s *sequence) opened(p string) []string {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return s.real("proc/thread-self/fd/" + strconv.Itoa(fd))
}

func (s *sequence) find(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(s.Finds) < 20 {
		s.Finds = append(s.Finds, fmt.Sprintf("after step %d: %s", len(s.Steps), text))
	}
}

// foundHost begins a find after which nothing more may be done.
const foundHost = "the host's own"

func (s *sequence) lost() bool {
	for _, f := range s.Finds {
		if strings.Contains(f, foundHost) {
			return true
		}
	}
	return false
}

// own reports whether a path is in the scratch directory or below what was
// mounted over it.
func (s *sequence) own(p string) bool { return within(path.Clean(p), s.scratch) }
