package program

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// mode lets the users that instances have execute a program, by a descriptor: nobody
	// writes to it, its owner neither.
	mode = 0o555
	// fresh begins the names of programs that are being unpacked.
	fresh    = ".new-"
	lockName = "lock"

	// spared is the age to which programs of another version stay, where there is room: who
	// unpacked them may be about to execute them, or use two versions in turn.
	spared = time.Hour

	// lockPatience is for another that unpacks, or sweeps.
	lockPatience = 20 * time.Second
	lockStep     = 10 * time.Millisecond
)

// place is a directory of programs.
type place struct{ dir string }

func at(state string) place { return place{filepath.Join(state, Dir)} }

// find opens a program that was unpacked before. Of the daemon's all is read. The daemon
// reads what it is handed itself, before it executes it first.
func (d place) find(p packed) (*os.File, error) {
	return d.open(p, p.fileName(), !slices.Contains(order.Handed(), p.name))
}

// open opens the file name, which must be p; wholly.
func (d place) open(p packed, name string, wholly bool) (*os.File, error) {
	f, err := home.OpenTrusted(filepath.Join(d.dir, name))
	if err != nil {
		return nil, err
	}
	err = errors.Join(executable(f), p.looksFit(f))
	if wholly && err == nil {
		err = order.Check(f, p.digest, p.size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// executable refuses a file on a mount that executes nothing.
func executable(f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s is on a file system that is mounted noexec", filepath.Dir(f.Name()))
	}
	return nil
}

// room refuses a file system that has no room for twice so many bytes: what sandboxes
// write comes first.
func (d place) room(bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		return &os.PathError{Op: "stat", Path: d.dir, Err: err}
	}
	if free := int64(st.Bavail) * st.Bsize; free < 2*bytes {
		return fmt.Errorf("%s has room for %d MiB: %w", d.dir, free>>20, unix.ENOSPC)
	}
	return nil
}

// looksFit refuses a file that its owner may write to, that others may not execute, or of
// another size.
func (p packed) looksFit(f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Mode().Perm() != mode || fi.Size() != p.size {
		return fmt.Errorf("%s: %w: its mode is %v, and its size %d", f.Name(), order.ErrUnfit, fi.Mode(), fi.Size())
	}
	return nil
}

// fill unpacks what is not there.
func (d place) fill(ctx context.Context, all []packed) (*Set, error) {
	if err := home.Make(d.dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := d.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	d.sweep(all, spared)
	if err := d.room(total(all)); err != nil {
		d.sweep(all, 0)
		if err := d.room(total(all)); err != nil {
			return nil, err
		}
	}
	s, err := gather(all, func(p packed) (*os.File, error) {
		if f, err := d.find(p); err == nil { // by another meanwhile
			return f, nil
		}
		return d.unpack(p)
	})
	if err != nil {
		for _, p := range all { // a part of them is of no use
			_ = os.Remove(filepath.Join(d.dir, p.fileName()))
		}
	}
	return s, err
}

// unpack writes a program under a name of its own, which becomes its proper one once all
// of it was read again, through the descriptor that is returned. It is not
// forced to the disk: what a crash leaves is read before it is executed.
func (d place) unpack(p packed) (_ *os.File, err error) {
	name := fresh + rand.Text()
	path := filepath.Join(d.dir, name)
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path) // whoever unpacks next removes it otherwise
		}
	}()
	err = p.unpack(w)
	if err == nil {
		err = w.Chmod(mode)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.name, err)
	}
	f, err := d.open(p, name, true)
	if err != nil {
		return nil, err
	}
	proper := filepath.Join(d.dir, p.fileName())
	if err := os.Rename(path, proper); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("keep %s open: %w", proper, err)
	}
	return os.NewFile(uintptr(fd), proper), nil
}

// lock keeps others from unpacking and sweeping, for as long as they have patience.
func (d place) lock(ctx context.Context) (*home.Lock, error) {
	end := time.NewTimer(lockPatience)
	defer end.Stop()
	step := time.NewTicker(lockStep)
	defer step.Stop()
	for {
		l, err := home.TakeLock(filepath.Join(d.dir, lockName))
		if err == nil || sandbox.KindOf(err) != sandbox.Conflict {
			return l, err
		}
		select {
		case <-step.C:
		case <-end.C:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// sweepOthers removes what is of other versions, if there is any and nobody else is at it.
func (d place) sweepOthers(all []packed) {
	if len(d.others(all, spared)) == 0 {
		return
	}
	l, err := home.TakeLock(filepath.Join(d.dir, lockName))
	if err != nil {
		return // the next daemon does it
	}
	defer l.Close()
	d.sweep(all, spared)
}

// others are the names of programs of that age that are not among all, and of what was
// left half unpacked. What is not ours stays.
func (d place) others(all []packed, age time.Duration) (names []string) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil
	}
	own := map[string]bool{}
	for _, p := range all {
		own[p.fileName()] = true
	}
	for _, e := range entries {
		n := e.Name()
		if strings.HasPrefix(n, fresh) || isProgram(n) && !own[n] && old(e, age) {
			names = append(names, n)
		}
	}
	return names
}

// old reports whether an entry was written so long ago.
func old(e fs.DirEntry, age time.Duration) bool {
	fi, err := e.Info()
	return err == nil && time.Since(fi.ModTime()) >= age
}

// sweep removes others of that age that no process executes; with the lock. It is no matter
// if it can't see all processes: what is executed goes on without a name.
func (d place) sweep(all []packed, age time.Duration) {
	names := d.others(all, age)
	if len(names) == 0 {
		return
	}
	used := executed()
	for _, n := range names {
		path := filepath.Join(d.dir, n)
		if id, err := identify(os.Lstat, path); err != nil || used[id] {
			continue
		}
		_ = os.Remove(path) // the next one tries again
	}
}

// file identifies one.
type file struct{ dev, ino uint64 }

func identify(stat func(string) (fs.FileInfo, error), path string) (file, error) {
	fi, err := stat(path)
	if err != nil {
		return file{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return file{}, order.ErrUnfit
	}
	return file{uint64(st.Dev), st.Ino}, nil
}

// executed are the programs of all processes, as far as they can be seen.
func executed() map[file]bool {
	out := map[file]bool{}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return out
	}
	for _, l := range links {
		if id, err := identify(os.Stat, l); err == nil {
			out[id] = true
		}
	}
	return out
}
