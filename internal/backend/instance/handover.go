package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// Handover is what an instance's guest agent inherits, in the order of the numbers
// that package control gives it. It has no name inside.
type Handover struct {
	Program *os.File // the agent's own
	Socket  *os.File // where the host reaches it
	Config  *os.File // what it is told
}

// Files are those of h in their order.
func (h *Handover) Files() []*os.File { return []*os.File{h.Program, h.Socket, h.Config} }

// Close closes them: the launcher of the instance's first process has no more use
// for them.
func (h *Handover) Close() {
	for _, f := range h.Files() {
		if f != nil {
			f.Close()
		}
	}
}

// handOver makes what the agent of an instance inherits. One that goes on
// from memory keeps the key that it has there, and is woken; any other gets a
// new one.
func (b *Backend) handOver(ctx context.Context, p *Layout, cfg *control.Config) (_ *Handover, err error) {
	dir, err := beneath.OpenDir(p.Dir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var out Handover
	defer func() {
		if err != nil {
			out.Close()
		}
	}()
	key, err := agentKey(dir, p.Resume)
	if err != nil {
		return nil, err
	}
	cfg.Key = key[:]
	if out.Program, err = os.Open(b.program); err != nil {
		return nil, fmt.Errorf("open the guest agent: %w", err)
	}
	if out.Config, err = configFile(cfg); err != nil {
		return nil, err
	}
	at, done, err := socketDir(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := shareConfig(at, cfg); err != nil {
		return nil, err
	}
	if out.Socket, err = control.Bind(at, fileSocket); err != nil {
		return nil, err
	}
	if p.Resume {
		err = control.Wake(ctx, at, fileSocket, key)
	}
	return &out, err
}

// configFile is a configuration that nobody can change any more, in memory.
func configFile(cfg *control.Config) (*os.File, error) {
	raw, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("agent", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make the agent's configuration: %w", err)
	}
	f := os.NewFile(uintptr(fd), "agent's configuration")
	_, err = f.Write(raw)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the agent's configuration: %w", err), f.Close())
	}
	return f, nil
}

// agentKey is the key of the start that is being prepared, and is written down
// for daemons that come later.
func agentKey(dir *beneath.Dir, resume bool) (control.Key, error) {
	if resume {
		return readKey(dir)
	}
	key := control.NewKey()
	if err := dir.WriteFile(fileKey, key[:], 0o600); err != nil {
		return key, fmt.Errorf("write the agent's key: %w", err)
	}
	return key, nil
}

func readKey(dir *beneath.Dir) (key control.Key, err error) {
	raw, err := dir.ReadFile(fileKey, control.KeySize)
	if err == nil && len(raw) < control.KeySize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return key, fmt.Errorf("read the agent's key: %w", err)
	}
	return control.Key(raw), nil
}
