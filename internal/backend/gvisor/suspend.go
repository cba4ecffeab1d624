package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/container"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/guestbin"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// Suspend implements sandbox.Suspender: the sentry writes its whole kernel,
// and what the guest has in memory, and ends.
func (b *Backend) Suspend(ctx context.Context, id string) error {
	return b.Backend.Suspend(ctx, id, func(dir string) error {
		p := launchOrder{Layout: instance.Layout{ID: id, Dir: filepath.Dir(dir), Rootless: b.Rootless()}}
		if err := writeProgram(dir); err != nil {
			return err
		}
		if err := b.Roles().Ask(ctx, roleSuspend, &p, nil, nil); err != nil {
			return fmt.Errorf("write the memory of the instance: %w", err)
		}
		return nil
	})
}

// suspendMain reads a launchOrder and has its instance written down.
func suspendMain(in io.Reader) error {
	runtime.LockOSThread()
	var p launchOrder
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if p.Rootless {
		if err := role.BecomeRoot(); err != nil {
			return err
		}
	}
	conf, err := runscConfig(&p)
	if err != nil {
		return err
	}
	gvlog.SetTarget(gvlog.GoogleEmitter{Writer: &gvlog.Writer{Next: io.Discard}})
	c, err := container.Load(conf.RootDir, container.FullID{ContainerID: p.ID}, container.LoadOpts{})
	if err != nil {
		return err
	}
	return c.Checkpoint(conf, filepath.Join(p.Dir, instance.DirMemoryNew), runsc.CheckpointOpts{
		Compression: statefile.CompressionLevelNone, ExcludeCommittedZeroPages: true,
	})
}

// fileProgram says which program wrote a memory: another's kernel may not
// read it.
const fileProgram = "program"

func writeProgram(dir string) error {
	id, err := program()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileProgram), []byte(id), 0o600)
}

// sameProgram wants the memory of the instance at dir to be of this program's
// making.
func sameProgram(dir string) error {
	id, err := program()
	if err != nil {
		return err
	}
	wrote, err := os.ReadFile(filepath.Join(dir, instance.DirMemoryUsed, fileProgram))
	if err == nil && string(wrote) != id {
		err = errors.New("another version of carboy wrote it")
	}
	return err
}

// program is what decides the form of a memory: gVisor's version, and Go's.
func program() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("this program does not know its own version")
	}
	id := info.GoVersion + " " + runtime.GOARCH
	for _, dep := range info.Deps {
		if dep.Path == "gvisor.dev/gvisor" {
			id += " " + dep.Version
		}
	}
	guest, err := guestbin.Digest()
	return id + " " + guest, err
}
