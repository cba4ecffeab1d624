package files

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

const (
	maxSources   = 10_000
	composeChunk = 64 << 20 // bytes between two looks at whether the caller is still there
)

type composeRequest struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// compose answers POST /files/compose: it joins files into one that appears
// whole or not at all, then removes them. On failure nothing has changed.
func (s *Service) compose(w http.ResponseWriter, r *http.Request) {
	dst, err := s.composed(r)
	if err != nil {
		httpError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, written{Path: dst, Name: path.Base(dst), Type: "file"})
}

func (s *Service) composed(r *http.Request) (string, error) {
	var req composeRequest
	// Fields that envd does not know either are left alone, as there.
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err == nil {
		err = strict.Known(body, &req)
	}
	if err != nil {
		return "", faultf(connect.CodeInvalidArgument, "read the request: %w", err)
	}
	switch {
	case len(req.SourcePaths) == 0:
		return "", faultf(connect.CodeInvalidArgument, "source_paths is empty")
	case len(req.SourcePaths) > maxSources:
		return "", faultf(connect.CodeInvalidArgument, "source_paths has more than %d paths", maxSources)
	case req.Destination == "":
		return "", faultf(connect.CodeInvalidArgument, "destination is missing")
	}
	a, err := s.who(r.Header, req.Username)
	if err != nil {
		return "", err
	}
	dst, err := s.resolve(a, req.Destination)
	if err != nil {
		return "", err
	}
	sources := make([]string, len(req.SourcePaths))
	for i, p := range req.SourcePaths {
		if sources[i], err = s.resolve(a, p); err != nil {
			return "", err
		}
	}
	return dst, s.making(r.Context(), a, path.Dir(dst), func() error { return s.join(r.Context(), dst, sources) })
}

// join runs on a worker.
func (s *Service) join(ctx context.Context, dst string, sources []string) error {
	if err := checkSources(dst, sources); err != nil {
		return err
	}
	dir := path.Dir(dst)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	// Not named after dst: that may be as long as a name can be.
	tmp := path.Join(dir, ".carboy-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	for _, p := range sources {
		if err == nil {
			err = appendFile(ctx, f, p)
		}
	}
	if err = also(err, f.Close()); err == nil {
		err = os.Rename(tmp, dst)
	}
	if err != nil {
		return also(err, os.Remove(tmp))
	}
	for _, p := range sources {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("a source stays after it was composed", "path", p, "error", err)
		}
	}
	return nil
}

// checkSources refuses what can't be joined before anything is made.
func checkSources(dst string, sources []string) error {
	var old unix.Stat_t
	exists := unix.Stat(dst, &old) == nil
	for _, p := range sources {
		fd, st, err := openRegular(p)
		if err != nil {
			return err
		}
		unix.Close(fd)
		if p == dst || exists && st.Dev == old.Dev && st.Ino == old.Ino {
			return faultf(connect.CodeInvalidArgument, "source '%s' is the destination too", p)
		}
	}
	return nil
}

// appendFile copies p to the end of f, inside the kernel where that can.
func appendFile(ctx context.Context, f *os.File, p string) error {
	fd, _, err := openRegular(p)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), p)
	defer src.Close()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := f.ReadFrom(io.LimitReader(src, composeChunk))
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}
