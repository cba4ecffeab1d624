package bottle

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// guest is a sandbox as its own user, by the agent in it.
type guest struct{ agent *agent.Guest }

var _ provider.Guest = guest{}

// Run implements provider.Guest.
func (g guest) Run(ctx context.Context, argv []string, most int) (*provider.Result, error) {
	cmd := &guestv1.Command{Argv: argv, TimeoutMs: uint64(commandTime.Milliseconds()), Cwd: "/"}
	// What a command gives is at its beginning; why it fails, at its end.
	o, err := g.agent.Exec(ctx, cmd, nil, agent.Keep{Head: most, Tail: maxSaid})
	if err != nil {
		return nil, explained(err)
	}
	r := &provider.Result{Code: int(o.Exit.GetCode()), Stdout: o.Stdout.Head}
	r.Stderr, _ = o.Stderr.Whole()
	switch o.Exit.GetReason() {
	case guestv1.Reason_REASON_TIMED_OUT:
		return nil, sandbox.Errorf(sandbox.Unavailable, "%s took longer than a minute", path.Base(argv[0]))
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		return nil, sandbox.Errorf(sandbox.Exhausted, "%s ran out of memory", path.Base(argv[0])).WithHint("--memory, or limits of the bottle, give more")
	case guestv1.Reason_REASON_NOT_STARTED:
		r.Missing = true
		r.Stderr = []byte(o.Exit.GetError())
	case guestv1.Reason_REASON_EXITED, guestv1.Reason_REASON_SIGNALLED:
		r.Lost = r.Code == lostCode
	}
	return r, nil
}

// lostCode is how a command ends that was killed, or whose end was.
const lostCode = 137

// maxSaid bounds the end of what a command says, in bytes.
const maxSaid = 4 << 10

// explained is an error of the agent's as the caller may see it.
func explained(err error) error {
	if r, ok := errors.AsType[*agent.Refusal](err); ok {
		return sandbox.Errorf(sandbox.Invalid, "the sandbox refuses: %s", r.Text)
	}
	if errors.Is(err, agent.ErrBroken) || errors.Is(err, agent.ErrUnreached) {
		return &sandbox.Error{Kind: sandbox.Unavailable, Msg: "the sandbox did not answer", Err: err}
	}
	return err
}

// Write implements provider.Guest.
func (g guest) Write(ctx context.Context, e provider.Entry) error {
	return g.put(ctx, e.Path, true, func(w io.Writer) error { return archive(w, &e) })
}

// put puts what f writes, a tar archive, at a path.
func (g guest) put(ctx context.Context, at string, as bool, f func(io.Writer) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := f(w)
		_ = w.CloseWithError(err) // never fails
		written <- err
	}()
	skipped, err := g.agent.Put(ctx, at, as, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // the writer has ended, or does now
	switch werr := <-written; {
	case werr != nil && !errors.Is(werr, io.ErrClosedPipe):
		return werr
	case err != nil:
		return explained(err)
	case skipped != "":
		return sandbox.Errorf(sandbox.Invalid, "%s", skipped)
	}
	return nil
}

// archive writes an entry as the one member of an archive.
func archive(w io.Writer, e *provider.Entry) error {
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
