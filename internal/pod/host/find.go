package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
)

// maxEnviron is more than an environment can have: 6 MiB.
const maxEnviron = 8 << 20

func parent(dir string) string { return filepath.Dir(dir) }

// end kills all that has a pod's token, and what adopted it, until there is none. What has taken the
// token out of its environment is found no more, unless it is the pod's first process.
func end(ctx context.Context, p record.Pod) error {
	for {
		found, err := find(ctx, p)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		for _, h := range found {
			err = errors.Join(err, h.Kill(), h.Done(ctx), h.Close())
		}
		if err != nil {
			return fmt.Errorf("end the processes of pod %s: %w", p.Name, err)
		}
	}
}

// find opens the processes of a pod.
func find(ctx context.Context, p record.Pod) (found []*procid.Handle, err error) {
	defer func() {
		if err != nil {
			for _, h := range found {
				h.Close()
			}
		}
	}()
	pids, err := others()
	if err != nil {
		return nil, err
	}
	with, err := having(ctx, pids, p.Token)
	if err != nil {
		return nil, err
	}
	for _, pid := range with {
		h, err := procid.OpenPID(pid)
		if err != nil {
			continue // it has ended
		}
		found = append(found, h)
		if still, err := having(ctx, []int{pid}, p.Token); err != nil {
			return found, err
		} else if len(still) == 0 { // the number is another's by now
			h.Close()
			found = found[:len(found)-1]
		}
	}
	if p.Process.PID == os.Getpid() || p.Process.IsZero() {
		return found, nil
	}
	if h, err := procid.Open(p.Process); err == nil {
		found = append(found, h)
	}
	return found, nil
}

// others are the numbers of all processes but this one.
func others() (pids []int, err error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

const (
	blink = time.Millisecond // between two looks at a process that is not known yet
	looks = 2000             // at one that is in the middle of an exec
	// stills is how many looks in a row have to find the same place, and less there than it should have:
	// the process has taken the pages away, as gVisor's do, and none of an exec is in between.
	stills = 20
)

// having are those of processes that run and have a token in their environment. Where that can't
// be read it is another user's.
func having(ctx context.Context, pids []int, token string) (with []int, err error) {
	open := make([]look, len(pids))
	for i, pid := range pids {
		open[i].pid = pid
	}
	mark := []byte("\x00" + tokenVariable + "=" + token + "\x00")
	for range looks {
		unknown := open[:0]
		for _, l := range open {
			switch has, known := l.has(mark); {
			case has:
				with = append(with, l.pid)
			case !known:
				unknown = append(unknown, l)
			}
		}
		if open = unknown; len(open) == 0 {
			return with, nil
		}
		select {
		case <-time.After(blink):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("process %d is in the middle of an exec for too long", open[0].pid)
}

// look is what was seen of a process's environment before.
type look struct {
	pid    int
	at     span
	stills int
}

// has reports whether a process has a mark in its environment, and whether that is known: in the middle of
// an exec the environment is not there yet, or there no more as it is read. That no mark is in it counts
// where all of it was read, and it lay in the same place before and after.
func (l *look) has(mark []byte) (has, known bool) {
	dir := "/proc/" + strconv.Itoa(l.pid)
	before, _ := place(dir)
	b, err := environ(dir + "/environ")
	if errors.Is(err, fs.ErrPermission) {
		return false, true
	}
	if bytes.Contains(append([]byte{0}, b...), mark) {
		return true, true
	}
	after, there := place(dir)
	switch {
	case !there:
		return false, true
	case err != nil || before != after || after.start == 0:
		l.at, l.stills = span{}, 0
		return false, false
	case after.end-after.start == uint64(len(b)):
		return false, true
	case l.at != after:
		l.at, l.stills = after, 0
	}
	l.stills++
	return false, l.stills >= stills
}

// environ is an environment.
func environ(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxEnviron))
}

// span is where a process has its environment; zero in the middle of an exec.
type span struct{ start, end uint64 }

// envStart is the place of env_start among the fields of /proc/PID/stat after the program's name;
// env_end follows it.
const envStart = 47

// place looks where a process has its environment. A thread of the kernel's is not there, and
// neither is a process that has ended.
func place(dir string) (s span, there bool) {
	if _, err := os.Readlink(dir + "/exe"); err != nil {
		return s, false
	}
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return s, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= envStart+1 {
		return s, false
	}
	s.start, err = strconv.ParseUint(string(fields[envStart]), 10, 64)
	if err == nil {
		s.end, err = strconv.ParseUint(string(fields[envStart+1]), 10, 64)
	}
	return s, err == nil
}
