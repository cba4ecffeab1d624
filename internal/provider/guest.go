package provider

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"path"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// stepTime bounds one command of a set-up, in milliseconds.
const stepTime = 60_000

// Sandbox is a running sandbox as a Guest, by the client.
type Sandbox struct {
	Client *client.Client
	ID     string
}

// Run implements Guest.
func (s *Sandbox) Run(ctx context.Context, argv []string, most int) (*Result, error) {
	// What a command gives is at its beginning; why it fails, at its end.
	stdout, stderr := excerpt.New(most, 0), excerpt.New(most/4, most-most/4)
	end, err := s.Client.Exec(ctx, s.ID, client.ExecOptions{
		ID:      rand.Text(),
		Command: &guestv1.Command{Argv: argv, TimeoutMs: stepTime, Cwd: "/"},
		Stdout:  stdout, Stderr: stderr,
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Code: int(end.GetCode()), Stdout: stdout.Excerpt().Head}
	r.Stderr, _ = stderr.Excerpt().Whole()
	switch end.GetReason() {
	case guestv1.Reason_REASON_TIMED_OUT:
		return nil, sandbox.Errorf(sandbox.Unavailable, "%s took longer than a minute", path.Base(argv[0]))
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		return nil, sandbox.Errorf(sandbox.Exhausted, "%s ran out of memory", path.Base(argv[0])).WithHint("--memory gives more")
	case guestv1.Reason_REASON_NOT_STARTED:
		r.Stderr = []byte(end.GetError())
	default:
		r.Lost = r.Code == 137
	}
	return r, nil
}

// Write implements Guest. The rights are those of the sandbox's user.
func (s *Sandbox) Write(ctx context.Context, entries []Entry) error {
	for i := range entries {
		if err := s.write(ctx, &entries[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) write(ctx context.Context, e *Entry) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(archive(w, e)) }() // ends with r
	var skipped *client.Skip
	err := s.Client.Upload(ctx, s.ID, client.UploadOptions{Path: e.Path, Mode: "as", Skipped: func(k client.Skip) { skipped = &k }}, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // the writer has ended, or does now
	if err == nil && skipped != nil {
		err = sandbox.Errorf(sandbox.Invalid, "%s: %s", e.Path, term.Escape(skipped.Reason))
	}
	return err
}

// archive writes an entry as the one member of an archive.
func archive(w io.Writer, e *Entry) error {
	h := &tar.Header{Name: path.Base(e.Path), Mode: e.Mode, Typeflag: tar.TypeReg, Size: int64(len(e.Content))}
	src := io.Reader(bytes.NewReader(e.Content))
	if e.Source != nil {
		h.Size, src = e.Size, io.LimitReader(e.Source, e.Size)
	}
	t := tar.NewWriter(w)
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if n, err := io.Copy(t, src); err != nil {
		return err
	} else if n != h.Size {
		return fmt.Errorf("%s changed while it was read", e.Path)
	}
	return t.Close()
}
