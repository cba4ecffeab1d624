package box

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Where a suspended box's kernel is, below the box's directory: its processes,
// and what they have in memory. It counts under the second name alone, and is
// taken from there before it is used: a disk that has moved on and an older
// memory of it must never meet.
const (
	DirMemoryNew  = "memory.new"
	dirMemory     = "memory"
	DirMemoryUsed = "memory.used"
)

// What the agent and the host say to each other in the control directory: the
// agent holds nothing of the host's any more, and is wanted again.
const (
	fileAsleep = "asleep"
	fileAwake  = "awake"
)

// quiesceLimit bounds how long an agent may take to let go of the host.
const quiesceLimit = 10 * time.Second

// Suspend has the guest agent give up its socket, has save write the box's
// kernel into a directory, which must end the box or leave it of no use, and
// ends what is left. After an error the box is as good as lost: only Stop is
// of use, and no memory is kept.
func (h *Host) Suspend(ctx context.Context, id string, save func(dir string) error) error {
	dir, err := h.dir(id)
	if err != nil {
		return err
	}
	fresh := filepath.Join(dir, DirMemoryNew)
	if err := errors.Join(h.Forget(ctx, id), os.Mkdir(fresh, 0o700)); err != nil {
		return err
	}
	err = h.quiesce(ctx, id, dir)
	if err == nil {
		err = save(fresh)
	}
	if err == nil {
		err = h.end(ctx, id)
	}
	if err == nil {
		err = os.Rename(fresh, filepath.Join(dir, dirMemory))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return nil
}

// Suspended reports whether a box has memory to go on with.
func (h *Host) Suspended(id string) bool {
	dir, err := h.dir(id)
	return err == nil && exists(filepath.Join(dir, dirMemory))
}

// Forget deletes what Suspend kept.
func (h *Host) Forget(_ context.Context, id string) error {
	dir, err := h.dir(id)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(filepath.Join(dir, dirMemory)), forgetParts(dir))
}

// forgetParts deletes memory that is not whole, or was used.
func forgetParts(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, DirMemoryNew)), os.RemoveAll(filepath.Join(dir, DirMemoryUsed)))
}

// quiesce waits until the agent has let go.
func (h *Host) quiesce(ctx context.Context, id, dir string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, quiesceLimit, errors.New("no answer in time"))
	defer cancel()
	if err := h.ask(ctx, id, http.MethodPost, "/carboy/suspend"); err != nil {
		if bound, ok := errors.AsType[*conflict](err); ok {
			return sandbox.Errorf(sandbox.Unsupported, "a program has a unix socket at %s, which can't be written down", bound.text)
		}
		return fmt.Errorf("suspend the guest agent: %w", err)
	}
	tick := time.NewTicker(guestTick)
	defer tick.Stop()
	for !exists(filepath.Join(dir, DirControl, fileAsleep)) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("suspend the guest agent: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// awaken leaves word for an agent that is about to go on. The guest's kernel
// can put what it likes there: nothing is followed or written into.
func awaken(dir string) error {
	at := filepath.Join(dir, DirControl, fileAwake)
	fd, err := unix.Open(at, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("call the guest agent: %w", err)
	}
	return unix.Close(fd)
}

// Resume prepares a plan whose box is to go on from what Suspend kept, which is
// at DirMemoryUsed from then on.
func (h *Host) Resume(p *Plan) error {
	if err := awaken(p.Dir); err != nil {
		return err
	}
	p.Resume = true
	if err := os.Rename(filepath.Join(p.Dir, dirMemory), filepath.Join(p.Dir, DirMemoryUsed)); err != nil {
		return err
	}
	return syncDir(p.Dir) // or a crash of the host brings it back, beside a disk that has moved on
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// NotResumed is the error of a box that could not go on from its memory.
func NotResumed(cause error) error { return fmt.Errorf("%w: %w", sandbox.ErrMemoryLost, cause) }
