package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

const (
	fileMode    = 0o666 // of new files, before the umask
	writeBuffer = 256 << 10
	maxUploads  = 10_000 // files of one request
	maxReopen   = 8      // times that a file is looked for anew
)

// written is what an upload answers for each file: envd's EntryInfo of
// /files, which is not that of the filesystem service.
type written struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// uploader takes the files of one request.
type uploader struct {
	s        *Service
	ctx      context.Context // of the request
	account  account.Account
	path     string // the query's; "" if it names none
	metadata map[string]string
	done     []written
}

// upload answers POST /files?path=&username=. The body is one file as
// application/octet-stream, or parts called "file" as multipart/form-data,
// each named by its filename unless the query has a path; it may be
// compressed with gzip.
//
// A file that exists is written in place: it keeps its inode, mode and links,
// and a watcher sees a write. The price is that an upload which fails leaves
// it cut short, and the error says so; a file that the upload made is
// removed again. Of uploads at once to one file, each waits for the one
// before it.
func (s *Service) upload(w http.ResponseWriter, r *http.Request) {
	u := &uploader{s: s, ctx: r.Context(), path: r.URL.Query().Get("path")}
	if err := u.run(r); err != nil {
		s.log.Warn("upload failed", "path", u.path, "error", err)
		httpError(w, err)
		return
	}
	if u.done == nil {
		u.done = []written{}
	}
	writeJSON(w, http.StatusOK, u.done)
}

func (u *uploader) run(r *http.Request) error {
	var err error
	if u.account, err = u.s.who(r.Header, r.URL.Query().Get("username")); err != nil {
		return err
	}
	if u.metadata, err = metadataFrom(r.Header); err != nil {
		return err
	}
	body, err := decoded(r)
	if err != nil {
		return err
	}
	contentType := r.Header.Get("Content-Type")
	media, params, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && media == "application/octet-stream":
		if u.path == "" {
			return faultf(connect.CodeInvalidArgument, "a raw upload needs the query parameter path")
		}
		return u.file(u.path, body)
	case err == nil && strings.HasPrefix(media, "multipart/") && params["boundary"] != "":
		return u.parts(multipart.NewReader(body, params["boundary"]))
	}
	return faultf(connect.CodeInvalidArgument,
		"content type %.64q: send multipart/form-data with a boundary, or application/octet-stream", contentType)
}

func (u *uploader) parts(m *multipart.Reader) error {
	for {
		part, err := m.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return faultf(connect.CodeInvalidArgument, "read the form: %w%s", err, u.soFar())
		}
		if part.FormName() != "file" {
			continue
		}
		name := u.path
		if name == "" {
			if name, err = fileName(part); err != nil {
				return err
			}
		}
		if err := u.file(name, part); err != nil {
			return fmt.Errorf("%w%s", err, u.soFar())
		}
	}
}

// fileName returns the whole name of a part, where package multipart would
// keep what follows the last slash.
func fileName(part *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil || params["filename"] == "" {
		return "", faultf(connect.CodeInvalidArgument, "a part of the form has no file name")
	}
	return params["filename"], nil
}

// soFar names what was uploaded before an error.
func (u *uploader) soFar() string {
	if len(u.done) == 0 {
		return ""
	}
	var names []string
	for _, d := range u.done {
		if len(names) == 16 {
			names = append(names, "…")
			break
		}
		names = append(names, d.Path)
	}
	return fmt.Sprintf(" (uploaded before: %s)", strings.Join(names, ", "))
}

// file writes one file and notes it in u.done.
func (u *uploader) file(name string, r io.Reader) error {
	p, err := u.s.resolve(u.account, name)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(u.done, func(d written) bool { return d.Path == p }) {
		return faultf(connect.CodeInvalidArgument, "two files of one upload have the path '%s'; the first was written", p)
	}
	if len(u.done) == maxUploads {
		return faultf(connect.CodeInvalidArgument, "more than %d files in one upload", maxUploads)
	}
	t := &target{path: p, fd: -1}
	err = u.open(t)
	if err == nil {
		err = u.fill(t, r)
	}
	if err == nil {
		err = u.as(func() error { return t.finish(u.metadata, u.s) })
	}
	if err != nil {
		// The request may be why: a client that left.
		clean := context.WithoutCancel(u.ctx)
		err = also(err, u.s.workers.Do(clean, u.account, t.giveUp))
		if t.provided.file != (inode{}) {
			err = also(err, u.s.withdraw(clean, t.provided))
		}
	} else {
		u.done = append(u.done, written{Path: p, Name: path.Base(p), Type: "file", Metadata: t.metadata})
	}
	if t.turn {
		u.s.uploads.release(t.file)
	}
	return err
}

// open opens t and empties it, once no other upload writes to the same file.
// One that failed meanwhile may have removed what it made: then t is opened
// anew.
func (u *uploader) open(t *target) error {
	for range maxReopen {
		if err := u.openOne(t); err != nil {
			return err
		}
		if err := u.s.uploads.take(u.ctx, t.file, turnWait); err != nil {
			return fmt.Errorf("%s: %w", t.path, err)
		}
		t.turn = true
		same := false
		err := u.as(func() (err error) {
			same, err = t.begin()
			return err
		})
		if err != nil || same {
			return err
		}
		u.s.uploads.release(t.file)
		t.turn = false
	}
	return faultf(connect.CodeFailedPrecondition, "%s: it is replaced again and again", t.path)
}

// openOne is t.open, after what the user may not make was provided.
func (u *uploader) openOne(t *target) error {
	err := u.as(t.open)
	if !errors.Is(err, unix.EACCES) {
		return err
	}
	made, ok := u.s.provide(u.ctx, u.account, t.path, true)
	if !ok {
		return err
	}
	t.provided = made
	return u.as(t.open)
}

func (u *uploader) as(fn func() error) error { return u.s.act(u.ctx, u.account, fn) }

// fill copies r to t. Each write runs on a worker: the user's quota and the
// blocks kept for root count, and a write takes set-id bits off a file.
func (u *uploader) fill(t *target, r io.Reader) error {
	buf := make([]byte, writeBuffer)
	for {
		n, rerr := readFull(r, buf)
		if n > 0 {
			if err := u.as(func() error { return t.write(buf[:n]) }); err != nil {
				return err
			}
		}
		switch {
		case rerr == io.EOF:
			return nil
		case rerr != nil:
			return faultf(connect.CodeInvalidArgument, "read the body: %w", rerr)
		}
	}
}

// readFull is io.ReadFull with r's own error, so that a body that was cut is
// not taken for one that ended.
func readFull(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}
