package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// provided is what root made for a user's request: an empty directory, or an
// empty file, which belongs to that user.
type provided struct {
	path string
	file inode // zero for a directory
}

// provide makes the first that is missing of p, where a may not: a directory,
// or the file p itself. With Options.Provide a write reaches, as with envd,
// where its user has no rights, for who asks could have named root; but nothing
// that is there is written to, no link is followed, a must be able to see the
// place, and root alone to change it. What lies below is a's own to make. It
// reports whether there is reason to try again.
func (s *Service) provide(ctx context.Context, a account.Account, p string, file bool) (made provided, ok bool) {
	root, err := s.opts.Lookup(account.Root)
	if err != nil || a.UID == 0 || !s.opts.Provide {
		return made, false
	}
	missing := ""
	err = s.workers.Do(ctx, a, func() (err error) {
		missing, err = firstMissing(p)
		return err
	})
	if err != nil || missing == "" {
		return made, false
	}
	made.path = missing
	err = s.workers.Do(ctx, root, func() (err error) {
		made.file, err = makeFor(missing, file && missing == p, a)
		return err
	})
	if err != nil {
		s.log.Warn("make what a request's user may not", "path", missing, "user", a.Name, "error", err)
	}
	return made, err == nil
}

// firstMissing returns the first part of p that is not there, or "". It runs
// with the rights of who asks: what that one can't see is an error.
func firstMissing(p string) (missing string, err error) {
	for ; p != "/"; p = path.Dir(p) {
		_, err := os.Lstat(p)
		if err == nil {
			return missing, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		missing = p
	}
	return missing, nil
}

// rootsOwn opens the directory of p, through no link, where root alone may
// change what is in it: what is made there has nobody who swaps it.
func rootsOwn(p string) (*beneath.Dir, error) {
	top, err := beneath.OpenDir("/")
	if err != nil {
		return nil, err
	}
	defer top.Close()
	rel := path.Join(".", path.Dir(p))
	dir, err := top.OpenDir(rel)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(dir.Fd(), &st); err == nil && (st.Uid != 0 || st.Mode&0o022 != 0) {
		err = unix.EACCES
	}
	if err != nil {
		dir.Close()
		return nil, &os.PathError{Op: "open", Path: path.Dir(p), Err: err}
	}
	return dir, nil
}

// makeFor makes p, above which all is there, and gives it to a.
func makeFor(p string, file bool, a account.Account) (inode, error) {
	dir, err := rootsOwn(p)
	if err != nil {
		return inode{}, err
	}
	defer dir.Close()
	var f *os.File
	if file {
		f, err = dir.Create(path.Base(p), fileMode)
	} else if err = dir.Mkdir(path.Base(p), dirMode); err == nil {
		f, err = dir.Open(path.Base(p), unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return inode{}, err
	}
	defer f.Close()
	if err := f.Chown(int(a.UID), int(a.GID)); err != nil || !file {
		return inode{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return inode{}, &os.PathError{Op: "stat", Path: p, Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

// withdraw removes a file that was provided for a request which then failed,
// unless another has its name by now.
func (s *Service) withdraw(ctx context.Context, made provided) error {
	root, err := s.opts.Lookup(account.Root)
	if err != nil {
		return err
	}
	return s.workers.Do(ctx, root, func() error {
		dir, err := rootsOwn(made.path)
		if err != nil {
			return nil //nolint:nilerr // it is not where it was made
		}
		defer dir.Close()
		name := path.Base(made.path)
		if st, err := dir.Stat(name); err != nil || (inode{st.Dev, st.Ino}) != made.file {
			return nil //nolint:nilerr // the same
		}
		return unix.Unlinkat(dir.Fd(), name, 0)
	})
}

// making is act for what makes p, or p's directory: fn is tried again where
// something had to be provided.
func (s *Service) making(ctx context.Context, a account.Account, p string, fn func() error) error {
	err := s.act(ctx, a, fn)
	if errors.Is(err, unix.EACCES) {
		if _, ok := s.provide(ctx, a, p, false); ok {
			return s.act(ctx, a, fn)
		}
	}
	return err
}
