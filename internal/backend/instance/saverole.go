package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/snapshot/tree"
)

// Names of layers, on an instance's disk and in a snapshot.
const (
	layerRoot      = "root"
	layerWorkspace = "workspace"
	upperOfView    = layerWorkspace + "/upper"
	partPrefix     = "part"
	// layerOver is the workspace of an instance that lies over a saved one. It has a
	// name of its own, for it is no view of the host's tree.
	layerOver = "workspace-over"
	// dirLinks is empty but while layers are copied.
	dirLinks = ".links"
)

// saveMain reads a saveOrder and copies the layers.
func saveMain(in io.Reader, out *os.File) error {
	runtime.LockOSThread()
	var o saveOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if o.Rootless {
		if err := role.BecomeRoot(); err != nil {
			return err
		}
	}
	unix.Umask(0)
	go role.EndWith(out)
	to, err := os.OpenFile(o.To, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer to.Close()
	layers, err := openLayers(o.Dir, o.Disk, o.Holder)
	if err != nil {
		return err
	}
	defer layers.Close()
	answer, err := saveLayers(layers, to, o)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		answer.Full, err = true, nil
	}
	if errors.Is(err, tree.ErrChanged) {
		answer.Changed, err = true, nil
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// saveLayers copies each layer under its name, but for those that o leaves out, and
// syncs them.
func saveLayers(layers *beneath.Dir, to *os.File, o saveOrder) (savedLayers, error) {
	var sum savedLayers
	names, err := layers.Names(".")
	if err != nil {
		return sum, err
	}
	slices.Sort(names)
	links, err := makeDir(to, dirLinks)
	if err != nil {
		return sum, err
	}
	defer links.Close()
	for _, name := range names {
		l, ok := layerAt(layers, name)
		if !ok || o.RootOnly && l.name == layerWorkspace {
			continue
		}
		n, err := saveLayer(layers, l, to, links, o.Rootless)
		sum.Size += n.Bytes
		sum.Devices += n.Devices
		if err != nil {
			return sum, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if err := unix.Unlinkat(int(to.Fd()), dirLinks, unix.AT_REMOVEDIR); err != nil {
		return sum, err
	}
	return sum, syncfs(to)
}

// syncfs writes out all of the file system that dir is on.
func syncfs(dir *os.File) error {
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// savedLayer is one layer of an instance.
type savedLayer struct {
	name  string // in a snapshot
	dir   string // on the disk
	plain bool   // it is what the guest sees, not an overlay's upper layer
}

// layerAt says what to copy of what is on an instance's disk under a name.
func layerAt(layers *beneath.Dir, name string) (savedLayer, bool) {
	l := savedLayer{name: name, dir: name + "/upper"}
	switch {
	case name == layerRoot, strings.HasPrefix(name, partPrefix+"-"):
	case name == layerOver:
		l.name = layerWorkspace
	case name == layerWorkspace:
		l.dir, l.plain = name, true
	default:
		return savedLayer{}, false
	}
	_, err := layers.Stat(name + "/work")
	return l, l.plain || err == nil
}

func saveLayer(layers *beneath.Dir, l savedLayer, to, links *os.File, userXattr bool) (tree.Copied, error) {
	src, err := layers.Open(l.dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return tree.Copied{}, err
	}
	defer src.Close()
	dst, err := makeDir(to, l.name)
	if err != nil {
		return tree.Copied{}, err
	}
	defer dst.Close()
	return tree.Copy(context.Background(), src, dst, links, tree.Options{Plain: l.plain, UserXattr: userXattr})
}

// makeDir makes a new directory and opens it.
func makeDir(parent *os.File, name string) (*os.File, error) {
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
