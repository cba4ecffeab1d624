package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/archive"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// fileManifest says what a volume began as. It lies beside the directory that sandboxes see.
const fileManifest = "origin"

// mounted is a volume as a process of ours has it.
type mounted struct {
	data  *os.File     // what sandboxes see
	above *beneath.Dir // the directory around it
	point string       // where an image is mounted; "": it is none
}

// close gives the volume back, with all that was written to it on its disk.
func (m *mounted) close() error {
	err := unix.Syncfs(int(m.data.Fd()))
	m.data.Close()
	m.above.Close()
	if m.point != "" {
		err = errors.Join(err, disk.Unmount(m.point))
	}
	return err
}

// begin reads an order, and mounts its volume in this process's mount namespace. The source, where one is asked for, is
// opened before.
func begin(in io.Reader, withSource bool) (o order, source *os.File, m *mounted, err error) {
	runtime.LockOSThread()
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return o, nil, nil, fmt.Errorf("read order: %w", err)
	}
	if err := role.BecomeReader(o.Rootless); err != nil {
		return o, nil, nil, err
	}
	if withSource {
		if source, err = openSource(o.From); err != nil {
			return o, nil, nil, err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return o, nil, nil, fmt.Errorf("make mounts private: %w", err)
	}
	m, err = mount(o.Tree)
	return o, source, m, err
}

func mount(t tree.Tree) (*mounted, error) {
	path, err := t.Mount(context.Background(), t.Point)
	if err != nil {
		return nil, err
	}
	m := &mounted{}
	if t.Image != "" {
		m.point = t.Point
	}
	if m.above, err = beneath.OpenDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if m.data, err = m.above.Open(filepath.Base(path), unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	return m, nil
}

// openSource opens the directory that was accepted.
func openSource(d sandbox.HostDir) (*os.File, error) {
	f, err := beneath.OpenSame(d.Path, d.Dev, d.Ino)
	if errors.Is(err, beneath.ErrAnother) {
		return nil, sandbox.Errorf(sandbox.Conflict, "%s is not the directory that was named: another has its place", d.Path).WithHint("try again")
	}
	return f, err
}

// readAs is with whose rights the source is read.
func (o *order) readAs() *workspace.Identity {
	return workspace.OwnerOf(o.Rootless, workspace.Identity{UID: tree.Owner, GID: tree.Owner}, workspace.Identity{UID: o.From.UID, GID: o.From.GID})
}

// fillMain copies the source of a volume into it.
func fillMain(in io.Reader, out *os.File) error {
	go role.EndWith(out)
	o, source, m, err := begin(in, true)
	if err != nil {
		return err
	}
	defer source.Close()
	done, err := fill(&o, source, m, out)
	if err := errors.Join(err, m.close()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(Filled{Files: done.Files, Bytes: done.Bytes, Skipped: done.Skipped, More: done.More})
}

func fill(o *order, source *os.File, m *mounted, out io.Writer) (workspace.Populated, error) {
	return workspace.PopulateWith(context.Background(), source, m.data, m.above, fileManifest, workspace.PopulateOptions{
		UID: tree.Owner, GID: tree.Owner, ReadAs: o.readAs(),
		Progress: func(c sandbox.Copied) { _ = role.TellNews(out, c) }, // the answer will tell whether anybody reads it
	})
}

// changesMain writes what was changed in a volume since it was filled.
func changesMain(in io.Reader, out io.Writer) error {
	o, _, m, err := begin(in, false)
	if err != nil {
		return err
	}
	return errors.Join(changes(&o, m, out), m.close())
}

func changes(o *order, m *mounted, out io.Writer) error {
	manifest, err := m.above.OpenRegular(fileManifest)
	if err != nil {
		return err
	}
	defer manifest.Close()
	src, err := workspace.Copy(m.data, manifest)
	if err != nil {
		return err
	}
	return workspace.WriteChanges(context.Background(), out, src, workspace.Options{ChangesOptions: o.Options})
}

// exportMain writes an archive of a volume.
func exportMain(in io.Reader, out io.Writer) error {
	_, _, m, err := begin(in, false)
	if err != nil {
		return err
	}
	_, err = archive.Create(context.Background(), out, beneath.Path(m.data)+"/.", archive.CreateOptions{})
	return errors.Join(err, m.close())
}
