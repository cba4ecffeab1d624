package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Where a suspended instance's kernel is, below the instance's directory: its processes,
// and what they have in memory. It counts under the second name alone, and is
// taken from there before it is used: a disk that has moved on and an older
// memory of it must never meet.
const (
	DirMemoryNew  = "memory.new"
	dirMemory     = "memory"
	DirMemoryUsed = "memory.used"
)

// quiesceLimit bounds how long an agent may take to let go of the host.
const quiesceLimit = 10 * time.Second

// Suspend has the guest agent give up its connections, where nothing of the host's is locked; has save write the instance's
// kernel into a directory, which must end the instance or leave it of no use, and
// ends what is left. After an error the instance is as good as lost: only Stop is
// of use, and no memory is kept.
func (b *Backend) Suspend(ctx context.Context, id string, save func(dir string) error) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	fresh := filepath.Join(dir, DirMemoryNew)
	if err := errors.Join(b.Forget(ctx, id), os.Mkdir(fresh, 0o700)); err != nil {
		return err
	}
	if file := lockedFile(dir); file != "" {
		err = sandbox.Errorf(sandbox.Unsupported, "a program has a lock on %q, in a directory that others see, and they could take it meanwhile", file)
	}
	if err == nil {
		err = b.quiesce(ctx, id)
	}
	if err == nil {
		err = save(fresh)
	}
	if err == nil {
		err = b.end(ctx, id)
	}
	if err == nil {
		err = os.Rename(fresh, filepath.Join(dir, dirMemory))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	return nil
}

// lockedFile is the name of a file of the host that the instance at dir has a lock on, by the process
// that it lives by; "" where it has none, or that can't be seen.
func lockedFile(dir string) string {
	r, err := readRecord(dir)
	if err != nil || !r.alive() {
		return ""
	}
	proc := fmt.Sprintf("/proc/%d", r.Processes[0].PID)
	fds, _ := os.ReadDir(proc + "/fdinfo")
	for _, fd := range fds {
		info, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		if err != nil || !bytes.Contains(info, []byte("\nlock:")) {
			continue
		}
		name, err := os.Readlink(filepath.Join(proc, "fd", fd.Name()))
		if err == nil && procid.Alive(r.Processes[0]) { // the number may be another's by now
			return filepath.Base(name)
		}
	}
	return ""
}

// Suspendable refuses an instance whose agent can't be asked: what runs in it would
// be lost.
func (b *Backend) Suspendable(_ context.Context, id string) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	if exists(filepath.Join(dir, fileKey)) || !legacy(dir) {
		return nil
	}
	return legacyError(id)
}

// Suspended reports whether an instance has memory to go on with.
func (b *Backend) Suspended(id string) bool {
	dir, err := b.dir(id)
	return err == nil && exists(filepath.Join(dir, dirMemory))
}

// Forget deletes what Suspend kept.
func (b *Backend) Forget(_ context.Context, id string) error {
	dir, err := b.dir(id)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(filepath.Join(dir, dirMemory)), forgetParts(dir))
}

// forgetParts deletes memory that is not whole, or was used.
func forgetParts(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, DirMemoryNew)), os.RemoveAll(filepath.Join(dir, DirMemoryUsed)))
}

// quiesce waits until the agent has let go: its last connection is the one over
// which it was asked.
func (b *Backend) quiesce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, quiesceLimit, errors.New("no answer in time"))
	defer cancel()
	err := b.agent(id).Suspend(ctx)
	if e, ok := errors.AsType[*agent.StatusError](err); ok && e.Code == http.StatusConflict {
		return sandbox.Errorf(sandbox.Unsupported, "a program has a unix socket at %s, which can't be written down", e.Text)
	}
	if err != nil {
		return fmt.Errorf("suspend the guest agent: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// resume prepares a layout whose instance is to go on from what Suspend kept,
// which is at DirMemoryUsed from then on.
func (b *Backend) resume(lay *Layout) error {
	lay.Resume = true
	// On the disk, or a crash of the host brings it back, beside a disk that has moved on.
	return durable.Rename(filepath.Join(lay.Dir, dirMemory), filepath.Join(lay.Dir, DirMemoryUsed), 0)
}
