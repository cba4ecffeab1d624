package workspace

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// The kernel keeps one inode for a copy in a view and for the file of the base that it is a copy of, and finds that
// file by a handle, at whatever path it is by now. So where the base's file was renamed meanwhile, by its user
// or by an apply, two files of the view would be one: the second of them that is looked up shows what the first one has,
// or is ESTALE.

// Untie has the kernel take what an upper layer has for files that it made itself, and keeps what they are copies of under a name of
// ours, where changes are told by it. No view of the layer may be mounted. Directories stay as they are:
// the kernel looks for their other half by its path. What can't be written to, on a full disk or for
// being immutable, stays tied. A directory that is as the last call left it is not looked at again.
func Untie(upper *os.File) error {
	now := coarseTime()
	d, err := openDirAt(upper, ".")
	if err != nil {
		return fmt.Errorf("open upper directory: %w", err)
	}
	defer d.Close()
	if err := (untier{lastUntied(d, now)}).dir(d, ".", 0); err != nil {
		return err
	}
	if err := unix.Fsetxattr(int(d.Fd()), xattrUntied, strconv.AppendInt(nil, now, 10), 0); err != nil && !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("note when copies were untied: %w", err)
	}
	return nil
}

// untieSlack is by how much the clock may have been set back while a view was mounted.
const untieSlack = time.Minute

// lastUntied is when Untie was called before, in ns since 1970; 0: never, or the clock was set back since.
func lastUntied(upper *os.File, now int64) int64 {
	var b [20]byte
	n, err := unix.Fgetxattr(int(upper.Fd()), xattrUntied, b[:])
	if err != nil {
		return 0
	}
	last, err := strconv.ParseInt(string(b[:n]), 10, 64)
	if err != nil || last > now {
		return 0
	}
	return last - int64(untieSlack)
}

// untier is one run of Untie.
type untier struct {
	last int64 // directories with an earlier change time have nothing new in them
}

func (u untier) dir(d *os.File, rel string, depth int) error {
	st, err := statFile(d)
	if err != nil {
		return fmt.Errorf("stat %s: %w", term.Escape(rel), err)
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("list %s: %w", term.Escape(rel), err)
	}
	at := fdPath(d) + "/"
	for _, e := range entries {
		switch {
		case e.IsDir() && depth < MaxDepth: // of what is deeper no change is told
			err = u.subdir(d, e.Name(), joinPath(rel, e.Name()), depth+1)
		case !e.IsDir() && st.Ctim.Nano() >= u.last:
			untie(at + e.Name())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u untier) subdir(d *os.File, name, rel string, depth int) error {
	sub, err := openDirAt(d, name)
	if err != nil {
		return fmt.Errorf("open %s: %w", term.Escape(rel), err)
	}
	defer sub.Close()
	return u.dir(sub, rel, depth)
}

// untie moves the handle of one file to where the kernel does not look.
func untie(path string) {
	var b [256]byte
	n, err := unix.Lgetxattr(path, xattrOrigin, b[:])
	if err != nil {
		return
	}
	if unix.Lsetxattr(path, xattrCopyOf, b[:n], 0) == nil {
		_ = unix.Lremovexattr(path, xattrOrigin) // it was just there
	}
}
