package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

const (
	perChild = 25              // sequences of one process, which share what it entered
	stuck    = 8 * time.Second // what one sequence may take
)

// compose makes up sequences of steps, runs them, and prints each as a line.
// It knows what system calls there are and what a sandbox shows of itself, and
// nothing of how one is made. A process runs a few of them, each in a thread
// with mounts of its own; one that hangs loses the rest of its process.
func compose(in io.Reader, out io.Writer) error {
	var p facts.Plan
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	defer w.Flush()
	if len(p.Replay) > 0 {
		for _, c := range p.Replay {
			one := p
			one.Replay = []facts.Composition{c}
			one.From, one.Most = c.Number, 1
			if _, err := composeSome(one, c.Entry, w); err != nil {
				return err
			}
		}
		return nil
	}
	end := time.Now().Add(time.Duration(p.Millis) * time.Millisecond)
	for next := p.From; next < p.From+p.Most && time.Now().Before(end); {
		one := p
		one.From, one.Most = next, min(perChild-next%perChild, p.From+p.Most-next)
		one.Millis = max(1, time.Until(end).Milliseconds())
		n, err := composeSome(one, entryOf(p.Seed, next/perChild), w)
		if err != nil {
			return err
		}
		next += max(n, 1)
	}
	return nil
}

// source is where the choices of one sequence, or one process, come from.
func source(seed uint64, kind string, n int) *rand.Rand {
	var b [32]byte
	copy(b[:8], kind)
	for i := range 8 {
		b[8+i], b[16+i] = byte(seed>>(8*i)), byte(uint64(n)>>(8*i))
	}
	return rand.New(rand.NewChaCha8(b))
}

func entryOf(seed uint64, child int) facts.Entry {
	r := source(seed, "entry", child)
	if r.IntN(8) == 0 {
		return facts.Entry{}
	}
	e := facts.Entry{Flags: unix.CLONE_NEWUSER, Map: pick(r, []string{"root", "root", "none", "none", "same", "another"})}
	for _, f := range []uintptr{unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWIPC, unix.CLONE_NEWUTS, unix.CLONE_NEWCGROUP} {
		if r.IntN(3) == 0 {
			e.Flags |= f
		}
	}
	return e
}

// attributes are how to start the process of an entry. Root of a user namespace
// keeps its capabilities over an execution; others are told to.
func attributes(e facts.Entry) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: e.Flags, Pdeathsig: syscall.SIGKILL}
	if e.Flags&unix.CLONE_NEWUSER == 0 {
		return a
	}
	uid, gid := os.Getuid(), os.Getgid()
	switch e.Map {
	case "root":
		a.UidMappings, a.GidMappings = one(0, uid), one(0, gid)
		return a
	case "another": // where root may not map its own number
		a.UidMappings, a.GidMappings = one(0, 1000), one(0, 1000)
		a.Credential = &syscall.Credential{NoSetGroups: true}
		return a
	case "same":
		a.UidMappings, a.GidMappings = one(uid, uid), one(gid, gid)
	}
	a.AmbientCaps = []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT,
	}
	return a
}

func one(inside, outside int) []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: inside, HostID: outside, Size: 1}}
}

// composeSome runs sequences in a process of their own and returns how many
// it came to. One that can't be begun as asked is begun with less.
func composeSome(p facts.Plan, e facts.Entry, out *bufio.Writer) (n int, err error) {
	for _, e := range []facts.Entry{e, {Flags: e.Flags, Map: "none"}, {Flags: e.Flags & unix.CLONE_NEWUSER, Map: "none"}, {}} {
		if n, err = composeChild(p, e, out); err == nil {
			break
		}
	}
	return n, err
}

func composeChild(p facts.Plan, e facts.Entry, out *bufio.Writer) (int, error) {
	plan, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "composed")
	cmd.Stdin = bytes.NewReader(plan)
	cmd.SysProcAttr = attributes(e)
	cmd.WaitDelay = time.Second
	r, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	timer := time.AfterFunc(stuck, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	count, last := 0, facts.Composition{Number: p.From}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		timer.Reset(stuck)
		var c facts.Composition
		if json.Unmarshal(lines.Bytes(), &c) != nil {
			break
		}
		if last = c; c.Error == begun {
			continue
		}
		c.Entry, last.Error = e, ""
		count++
		if err := errors.Join(json.NewEncoder(out).Encode(c), out.Flush()); err != nil { // the box may end any time
			return count, err
		}
	}
	err = cmd.Wait()
	if last.Error == begun { // it hangs, or took its process along
		last.Entry, last.Error = e, "did not end"
		count++
		return count, json.NewEncoder(out).Encode(last)
	}
	if count == 0 && err == nil {
		return 0, io.ErrUnexpectedEOF
	}
	if count > 0 {
		err = nil
	}
	return count, err
}
