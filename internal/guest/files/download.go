package files

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// maxVirtual is how much is read of a file that does not say its size.
const maxVirtual = 4 << 20

// source is what a download sends.
type source struct {
	io.ReadSeeker
	file *os.File // to close, or nil
	mod  time.Time
}

// download answers GET /files?path=&username=: a regular file, in whole, in
// ranges, or compressed if the client prefers that. It is always
// application/octet-stream; what a guest's bytes are is not guessed.
func (s *Service) download(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a, err := s.who(r.Header, q.Get("username"))
	if err != nil {
		httpError(w, err)
		return
	}
	p, err := s.resolve(a, q.Get("path"))
	if err != nil {
		httpError(w, err)
		return
	}
	var src source
	err = s.act(r.Context(), a, func() (err error) {
		src, err = openSource(p)
		return err
	})
	if err != nil {
		httpError(w, err)
		return
	}
	if src.file != nil {
		defer src.file.Close()
	}
	h := r.Header
	plain := h.Get("Range")+h.Get("If-Range")+h.Get("If-None-Match")+h.Get("If-Modified-Since") != ""
	compress, err := accepted(h.Get("Accept-Encoding"), plain)
	if err != nil {
		httpErrorStatus(w, http.StatusNotAcceptable, err.Error())
		return
	}
	w.Header().Set("Vary", "Accept-Encoding")
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p)}))
	if !compress {
		http.ServeContent(w, r, "", src.mod, src)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Set("Last-Modified", src.mod.UTC().Format(http.TimeFormat))
	if err := sendGzip(w, src); err != nil {
		s.log.Warn("download ended early", "path", p, "error", err)
		panic(http.ErrAbortHandler) // so that the client sees it
	}
}

const gzipBuffer = 64 << 10

func sendGzip(w io.Writer, src io.Reader) error {
	out := bufio.NewWriterSize(w, gzipBuffer) // or each few hundred bytes are a write of their own
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, src); err != nil {
		return err
	}
	return errors.Join(z.Close(), out.Flush())
}

// openSource opens a regular file. It runs on a worker. Opening never waits
// for another, as a fifo's would, and nothing but a regular file is read.
func openSource(p string) (source, error) {
	fd, st, err := openRegular(p)
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, faultf(connect.CodeNotFound, "path '%s' does not exist", p)
	}
	if err != nil {
		return source{}, err
	}
	mod := time.Unix(st.Mtim.Unix())
	if st.Size > 0 && !virtual(fd) {
		f := os.NewFile(uintptr(fd), p)
		return source{f, f, mod}, nil
	}
	defer unix.Close(fd)
	b, err := readVirtual(fd)
	if err != nil {
		return source{}, &os.PathError{Op: "read", Path: p, Err: err}
	}
	return source{bytes.NewReader(b), nil, mod}, nil
}

// openRegular opens a regular file for reading. It runs on a worker.
func openRegular(p string) (fd int, st unix.Stat_t, err error) {
	fd, err = unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, &os.PathError{Op: "open", Path: p, Err: err}
	}
	switch err = unix.Fstat(fd, &st); {
	case err != nil:
		err = &os.PathError{Op: "stat", Path: p, Err: err}
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = faultf(connect.CodeInvalidArgument, "path '%s' is a directory", p)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = faultf(connect.CodeInvalidArgument, "path '%s' is not a regular file", p)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// readVirtual reads a file that does not say its size, without waiting for
// more than there is.
func readVirtual(fd int) ([]byte, error) {
	var b []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) || err == nil && n <= 0:
			return b, nil
		case err != nil:
			return nil, err
		}
		if b = append(b, buf[:n]...); len(b) > maxVirtual {
			return nil, faultf(connect.CodeInvalidArgument, "the file does not say its size and has more than %d bytes", maxVirtual)
		}
	}
}

// virtual reports whether a file is made up by the kernel as it is read: its
// size says nothing, and the kernel asks at every read who it is that reads.
func virtual(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return true
	}
	switch st.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.SECURITYFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.BINFMTFS_MAGIC:
		return true
	}
	return false
}
