package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// owned is a workspace that is a volume of the owner's.
type owned struct {
	id, name   string
	size       int64
	inodes     int64
	grown      bool
	kept       string
	unenforced string
}

// sized says what size it has, where that is not simply what was asked.
func (v *owned) sized(hostPath string, size, inodes int64) string {
	switch {
	case v.grown:
		return fmt.Sprintf("workspace %s: it was grown to %d MiB", hostPath, v.size>>20)
	case size > 0 && v.size < size && v.kept != "":
		return fmt.Sprintf("workspace %s: it keeps its %d MiB, for it can't grow to %d: %s", hostPath, v.size>>20, size>>20, v.kept)
	case size > 0 && v.size != size:
		return fmt.Sprintf("workspace %s: it was made with %d MiB, and keeps them", hostPath, v.size>>20)
	case inodes > 0 && v.inodes != inodes:
		return fmt.Sprintf("workspace %s: it was made for %d files, and keeps to them", hostPath, v.inodes)
	}
	return ""
}

func (v *owned) notice(hostPath, at string) string {
	return fmt.Sprintf("%s is of another file system than this runtime's: %s shows the volume %s in its place, which its owner's sessions share and keep", hostPath, at, v.name)
}

func (v *owned) quota(bounded bool) string {
	switch {
	case v.unenforced == "":
		return request.QuotaHard
	case bounded:
		return request.QuotaSoft
	}
	return ""
}

// locate finds what a path of the host means: a directory below an allowed
// root, or a volume where the owner's client has said that the path is one of
// its own file system.
func (p *shaper) locate(ctx context.Context, c sandbox.Caller, hostPath, mode string, size, inodes int64) (sandbox.HostDir, *owned, error) {
	dir, err := p.roots.Open(hostPath, hostroot.Access{Make: mode == request.Writable, UID: uidOf(c.Owner)})
	if err == nil {
		defer dir.Close()
		return dir.HostDir, nil, nil
	}
	name, ok := p.ownName(c.Owner, hostPath)
	if !ok || p.volumes == nil || sandbox.KindOf(err) == sandbox.Internal {
		return sandbox.HostDir{}, nil, err
	}
	v, err := p.volumes.Ensure(ctx, c.Owner, name, size, inodes)
	if err != nil {
		return sandbox.HostDir{}, nil, err
	}
	return sandbox.HostDir{}, &owned{id: v.ID, name: name, size: v.Size, inodes: v.Inodes, grown: v.Grown, kept: v.Kept, unenforced: v.Unenforced}, nil
}

// ownName returns the name of the volume that stands for a path below what the
// owner's client calls its own; ok is false for any other path.
func (p *shaper) ownName(owner, hostPath string) (name string, ok bool) {
	p.mu.Lock()
	roots := p.declared[owner]
	p.mu.Unlock()
	at := cleanRoot(hostPath)
	for _, root := range roots {
		if at == root {
			return volumeName(path.Base(at), at), true
		}
		if rest, ok := strings.CutPrefix(at, strings.TrimSuffix(root, "/")+"/"); ok {
			return volumeName(rest, at), true
		}
	}
	return "", false
}

// OwnedPlace is where in a volume something of a client's own may be.
type OwnedPlace struct {
	Volume string // its name
	Dir    string // below its root, with slashes; ".": all of it
}

// Declare says what an owner's client calls its own host_root and
// default_workspace: paths of a file system that may be another than this
// one. A session's path below one of them that is not allowed here becomes a
// volume of the owner's.
func (r *Runtime) Declare(owner string, roots ...string) {
	r.shaper.mu.Lock()
	defer r.shaper.mu.Unlock()
	r.shaper.declared[owner] = cleanRoots(roots)
}

// OwnedPlaces returns where a path of what the owner's client calls its own may
// be: in the volume that stands for the path, or for a directory above it, the
// nearest first. Not all of these volumes have to be there.
func (r *Runtime) OwnedPlaces(owner, hostPath string) []OwnedPlace {
	var list []OwnedPlace
	p := cleanRoot(hostPath)
	for at := p; len(list) < maxPlaces; at = path.Dir(at) {
		name, ok := r.shaper.ownName(owner, at)
		if !ok {
			return list
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(p, at), "/")
		list = append(list, OwnedPlace{Volume: name, Dir: path.Clean(dir)})
	}
	return list
}

const maxPlaces = 64

const maxReadable = 60 // characters of a path in a volume's name

// volumeName is legible, and no other path's.
func volumeName(rest, whole string) string {
	readable := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '-'
	}, rest)
	if len(readable) > maxReadable {
		readable = readable[:maxReadable]
	}
	sum := sha256.Sum256([]byte(whole))
	return "box-" + readable + "-" + hex.EncodeToString(sum[:8])
}

// cleanRoot writes a path of a client, which may be a Windows machine, in one
// way.
func cleanRoot(p string) string {
	if len(p) > 2 && p[1] == ':' {
		p = strings.ReplaceAll(p, `\`, "/")
	}
	return path.Clean(p)
}

// cleanRoots leaves out what can't be a root: all of a file system is none.
func cleanRoots(roots []string) []string {
	var list []string
	for _, p := range roots {
		p = cleanRoot(p)
		windows := len(p) > 3 && p[1] == ':' && p[2] == '/'
		if (strings.HasPrefix(p, "/") && p != "/" || windows) && len(list) < maxRoots {
			list = append(list, p)
		}
	}
	return list
}

const maxRoots = 16

// isDir reports whether f is the directory that was accepted as d.
func isDir(f *os.File, d sandbox.HostDir) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Dev == d.Dev && st.Ino == d.Ino && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// canHold says of a directory in which something is in the place of skills, which
// a session that has it elsewhere may have put there, why none can be made of it.
// That the place is a directory is checked again where it is mounted.
func canHold(d sandbox.HostDir, hostPath string) error {
	dir, err := open(d)
	if err != nil {
		return err
	}
	defer dir.Close()
	var st unix.Stat_t
	err = unix.Fstatat(int(dir.Fd()), path.Base(tools.SkillsPath), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	return fault.Invalid("host_path %s: %s in it is no directory, and skills have to be there", hostPath, path.Base(tools.SkillsPath)).
		WithHint("remove it")
}
