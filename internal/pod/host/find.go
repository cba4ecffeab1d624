package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
)

// maxEnviron is how much of an environment is looked at: the token stands first.
const maxEnviron = 64 << 10

func parent(dir string) string { return filepath.Dir(dir) }

// end kills all that has a pod's token, and what adopted it, until there is none. What has taken the
// token out of its environment is found no more, unless it is the pod's first process.
func end(ctx context.Context, p record.Pod) error {
	for {
		found, err := find(p)
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
func find(p record.Pod) (found []*procid.Handle, err error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid == os.Getpid() || !has(pid, p.Token) {
			continue
		}
		h, err := procid.OpenPID(pid)
		if err != nil {
			continue // it has ended
		}
		if !has(pid, p.Token) { // the number is another's by now
			h.Close()
			continue
		}
		found = append(found, h)
	}
	if p.Process.PID == os.Getpid() || p.Process.IsZero() {
		return found, nil
	}
	if h, err := procid.Open(p.Process); err == nil {
		found = append(found, h)
	}
	return found, nil
}

// has reports whether a process that runs has a token in its environment. Where that can't be
// read it is another user's.
func has(pid int, token string) bool {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, maxEnviron)) // what can be read of it
	return bytes.Contains(append([]byte{0}, b...), []byte("\x00"+tokenVariable+"="+token+"\x00"))
}
