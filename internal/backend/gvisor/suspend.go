package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/guestbin"
)

// Suspend implements sandbox.Suspender: the sentry writes its whole kernel,
// and what the guest has in memory, and ends.
func (b *Backend) Suspend(ctx context.Context, id string) error {
	return b.Backend.Suspend(ctx, id, func(dir string) error {
		p := Order{Layout: instance.Layout{ID: id, Dir: filepath.Dir(dir), Rootless: b.Rootless()}}
		if err := writeProgram(dir); err != nil {
			return err
		}
		if err := b.Roles().Ask(ctx, RoleSuspend, &p, nil, nil); err != nil {
			return fmt.Errorf("write the memory of the instance: %w", err)
		}
		return nil
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
	versions, err := builtWith()
	if err != nil {
		return "", err
	}
	guest, err := guestbin.Digest()
	return versions + " " + guest, err
}

// builtWith are the versions that this program was built with. A test's does not know them.
var builtWith = func() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("this program does not know its own version")
	}
	i := slices.IndexFunc(info.Deps, func(d *debug.Module) bool { return d.Path == "gvisor.dev/gvisor" })
	if i < 0 { // of its gate's network, if for nothing else
		return "", errors.New("this program does not know gVisor's version")
	}
	return info.GoVersion + " " + runtime.GOARCH + " " + info.Deps[i].Version, nil
}
