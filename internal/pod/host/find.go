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
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if ok, err := has(ctx, pid, p.Token); err != nil {
			return found, err
		} else if !ok {
			continue
		}
		h, err := procid.OpenPID(pid)
		if err != nil {
			continue // it has ended
		}
		found = append(found, h)
		if ok, err := has(ctx, pid, p.Token); err != nil {
			return found, err
		} else if !ok { // the number is another's by now
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

// Between two looks at a process in the middle of an exec, and how many there are.
const (
	blink = time.Millisecond
	looks = 2000
)

// has reports whether a process that runs has a token in its environment. Where that can't be
// read it is another user's. In the middle of an exec it is not there yet, or there no more as it is
// read: that none is in it counts where all of it was read, and it lay in the same place before and after.
func has(ctx context.Context, pid int, token string) (bool, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	for range looks {
		before, _ := place(dir)
		b, err := environ(dir + "/environ")
		if errors.Is(err, fs.ErrPermission) {
			return false, nil
		}
		if bytes.Contains(append([]byte{0}, b...), []byte("\x00"+tokenVariable+"="+token+"\x00")) {
			return true, nil
		}
		after, there := place(dir)
		if !there || err == nil && before == after && after.start != 0 && after.end-after.start == uint64(len(b)) {
			return false, nil
		}
		select {
		case <-time.After(blink):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, fmt.Errorf("process %d is in the middle of an exec for too long", pid)
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
