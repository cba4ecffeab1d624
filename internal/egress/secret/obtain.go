package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// commandTimeout bounds a command that mints a value.
const commandTimeout = 30 * time.Second

// obtain gets a value from its source, with o's rights, and checks it. notes
// are for the owner.
func (s *Store) obtain(ctx context.Context, o owner, name string, src Source) (v Value, notes []string, err error) {
	var raw []byte
	var trimmed bool
	switch src.kind() {
	case KindValue:
		return NewValue(*src.Value.p()), nil, nil
	case KindFile:
		raw, notes, err = readAs(o.uid, src.File)
	case KindCommand:
		raw, err = s.run(ctx, o, name, src)
	}
	defer clear(raw)
	if err != nil {
		return Value{}, nil, err
	}
	text, trimmed := trim(raw)
	if trimmed && src.kind() == KindFile {
		notes = append(notes, "the end of line at the end of "+src.File+" is not part of the value")
	}
	if err := src.checkText(text); err != nil {
		return Value{}, nil, err
	}
	return NewValue(text), notes, nil
}

func (s *Store) run(ctx context.Context, o owner, name string, src Source) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, sandbox.Errorf(sandbox.Unavailable,
		"the command for secret %s took more than %s", name, commandTimeout))
	defer cancel()
	out, err := s.o.Run(ctx, Command{UID: o.uid, Argv: src.Command})
	if err == nil {
		return out, nil
	}
	clear(out)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return nil, e
	}
	e := sandbox.Errorf(sandbox.Unavailable, "the command for secret %s failed: %s", name, failure(err)).
		WithHint("run it yourself: what it prints on stderr is not kept")
	e.Err = err
	return nil, e
}

// failure tells how a command failed, and nothing that it printed.
func failure(err error) string {
	if e, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		if code := e.ExitCode(); code >= 0 {
			return fmt.Sprintf("it exited with %d", code)
		}
		return "a signal ended it"
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such program"
	case errors.Is(err, fs.ErrPermission):
		return "the program may not be run"
	default:
		return "it could not be run"
	}
}

// readAs reads a file with the rights of the user uid.
func readAs(uid int, path string) (text []byte, notes []string, err error) {
	f, err := openAs(uid, path)
	if err != nil {
		return nil, nil, unreadableFile(path, err)
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, unreadableFile(path, err)
	case !fi.Mode().IsRegular():
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "the secret's file %q is not a regular file", path)
	case fi.Mode().Perm()&0o044 != 0:
		notes = append(notes, fmt.Sprintf("others may read %s: chmod go= %s", path, path))
	}
	// One more byte than a value, and its end of line, tells too much.
	text, err = io.ReadAll(io.LimitReader(f, MaxValue+3))
	if err != nil {
		clear(text)
		return nil, nil, unreadableFile(path, err)
	}
	return text, notes, nil
}

func unreadableFile(path string, err error) error { return unreachable("the secret's file", path, err) }

func unreachable(what, path string, err error) error {
	why := "it can't be read"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "it is not there"
	case errors.Is(err, fs.ErrPermission):
		why = "its owner may not read it"
	}
	e := sandbox.Errorf(sandbox.Unavailable, "%s %q: %s", what, path, why)
	e.Err = err
	return e
}
