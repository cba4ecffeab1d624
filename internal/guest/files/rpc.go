package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"connectrpc.com/connect"
	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"golang.org/x/sys/unix"
)

const dirMode = 0o755 // of directories that a request makes along the way

// Stat describes what is at a path.
func (s *Service) Stat(ctx context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	var e *filesystem.EntryInfo
	err := s.at(ctx, req.Header(), req.Msg.GetPath(), func(p string) (err error) {
		e, err = entry(p, s.names.load())
		return err
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

// MakeDir makes a directory and those above it. One that is there already is
// AlreadyExists; anything else in its place is InvalidArgument.
func (s *Service) MakeDir(ctx context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	a, err := s.who(req.Header(), "")
	if err != nil {
		return nil, rpcError(err)
	}
	p, err := s.resolve(a, req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	var e *filesystem.EntryInfo
	err = s.making(ctx, a, p, func() error {
		switch st, err := os.Stat(p); {
		case err == nil && st.IsDir():
			return faultf(connect.CodeAlreadyExists, "%s: the directory is there already", p)
		case err == nil:
			return faultf(connect.CodeInvalidArgument, "%s is there already, and not a directory", p)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := os.MkdirAll(p, dirMode); err != nil {
			return err
		}
		var err error
		e, err = entry(p, s.names.load())
		return err
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: e}), nil
}

// Move renames a file or directory, and makes the directories above its new
// name. A file that had that name is replaced; a directory is AlreadyExists.
// From one file system to another it is FailedPrecondition.
func (s *Service) Move(ctx context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	a, err := s.who(req.Header(), "")
	if err != nil {
		return nil, rpcError(err)
	}
	from, err := s.resolve(a, req.Msg.GetSource())
	if err != nil {
		return nil, rpcError(err)
	}
	to, err := s.resolve(a, req.Msg.GetDestination())
	if err != nil {
		return nil, rpcError(err)
	}
	var e *filesystem.EntryInfo
	err = s.making(ctx, a, path.Dir(to), func() error {
		if err := move(from, to); err != nil {
			return err
		}
		var err error
		e, err = entry(to, s.names.load())
		return err
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: e}), nil
}

func move(from, to string) error {
	if _, err := os.Lstat(from); err != nil {
		return err // before anything is made for it
	}
	if err := os.MkdirAll(path.Dir(to), dirMode); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if errors.Is(err, syscall.EXDEV) {
		return faultf(connect.CodeFailedPrecondition,
			"%s and %s are on different file systems; copy it and remove the original", from, to)
	}
	return err
}

// Remove deletes a file, or a directory with all that is in it. What is not
// there is removed already.
func (s *Service) Remove(ctx context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	err := s.at(ctx, req.Header(), req.Msg.GetPath(), func(p string) error { return removeAll(ctx, p) })
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC

// removeAll deletes what is at p, following no link. It runs on a worker, and
// stops at the first thing that it can't delete.
func removeAll(ctx context.Context, p string) error {
	if p == "/" {
		return faultf(connect.CodeInvalidArgument, "the root directory can't be removed")
	}
	parent, base := path.Split(p)
	fd, err := unix.Open(parent, openDir, 0)
	if errors.Is(err, unix.EACCES) {
		fd, err = unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: parent, Err: err}
	}
	defer unix.Close(fd)
	if err := beneath.Remove(ctx, fd, base); err != nil {
		return fmt.Errorf("remove %s: %w", p, err)
	}
	return nil
}
