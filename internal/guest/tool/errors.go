package tool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
)

const (
	maxShown = 600 // bytes of an error's text
	maxShort = 256 // bytes of a path or a pattern in one
)

// failure is what a tool answers where it can't do what it was asked for.
type failure struct{ code, text string }

func (f *failure) Error() string { return f.text }

func failf(code, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// causes says what the system's answers mean. The first that matches counts.
var causes = []struct {
	err  error
	code string
	text string // the path follows
}{
	{unix.ENOENT, tools.ToolNotFound, "file not found"},
	{unix.ENOTDIR, tools.ToolNotFound, "file not found, since a part of its path is no directory"},
	{unix.EXDEV, tools.ToolEscapes, "path escapes the workspace boundary by a symbolic link; a link must be relative and stay inside"},
	{unix.ELOOP, tools.ToolEscapes, "path leads through a symbolic link that is not followed"},
	{unix.EACCES, tools.ToolDenied, "permission denied"},
	{unix.EPERM, tools.ToolDenied, "not permitted"},
	{unix.EROFS, tools.ToolDenied, "it can only be read"},
	{unix.ENOSPC, tools.ToolNoSpace, "no space left on device"},
	{unix.EDQUOT, tools.ToolNoSpace, "the workspace's quota is used up"},
	{unix.EFBIG, tools.ToolTooLarge, "the file would be too large"},
	{unix.EISDIR, tools.ToolInvalid, "path is a directory"},
	{unix.ENXIO, tools.ToolInvalid, "path must name a regular file"},
	{unix.ENAMETOOLONG, tools.ToolInvalid, "a name in the path is too long"},
	{unix.EAGAIN, tools.ToolConflict, "its directories are moved again and again"},
	{unix.ETXTBSY, tools.ToolConflict, "the file is a program that runs"},
	{context.DeadlineExceeded, tools.ToolOutOfTime, "the call's time was over"},
	{context.Canceled, tools.ToolOutOfTime, "the call was given up"},
}

// explain makes an error of the system one for the model to read; p is the
// path that it is about.
func explain(p string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return failf(c.code, "%s: %s", c.text, short(p))
		}
	}
	return failf(tools.ToolFailed, "%s: %v", short(p), err)
}

// short cuts a path or a pattern to what an error may hold of it.
func short(p string) string {
	if len(p) <= maxShort {
		return p
	}
	return strings.ToValidUTF8(p[:maxShort], "") + "…"
}

// shown makes a text fit to show: names in it are anybody's.
func shown(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r // what is no UTF-8 comes as utf8.RuneError
	}, text)
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

// repaired returns b as text, each byte that is no part of UTF-8 replaced, and
// whether one was.
func repaired(b []byte) (string, bool) {
	if utf8.Valid(b) {
		return string(b), false
	}
	var s strings.Builder
	s.Grow(len(b) + len(b)/2)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String(), true
}
