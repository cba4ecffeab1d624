// Package usage makes the errors of what a user typed: a flag, an argument, a
// path of this machine. They are Invalid, and a person reads them. It looks at
// nothing itself.
package usage

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Errorf returns an error about how carboy was called.
func Errorf(format string, args ...any) *sandbox.Error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

// Path is what the command or flag named what says of a path of this machine,
// which can't be used for err. A path that what has in it already is "".
func Path(what, path string, err error) *sandbox.Error {
	if link := Link(what, err); link != nil {
		return link
	}
	if path != "" {
		what += ": " + shell.Word(path)
	}
	return Errorf("%s: %w", what, Pathless(err))
}

// Link is the error for a path that leads through a link, nil for others.
func Link(what string, err error) *sandbox.Error {
	link, ok := errors.AsType[*beneath.LinkError](err)
	if !ok {
		return nil
	}
	return Errorf("%s: %w", what, link).WithHint("if it is yours, name what it leads to: readlink -f %s", shell.Word(link.Path))
}

// Named puts a sandbox's name in the place of its ID in what err says: carboy asks by
// the ID where another sandbox could have taken the name, and a user never typed it.
// Any other error, and nil, it returns as it is.
func Named(err error, id, name string) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || id == "" || !strings.Contains(e.Msg+"\n"+e.Hint, id) {
		return err
	}
	c := *e
	c.Msg, c.Hint = strings.ReplaceAll(e.Msg, id, name), strings.ReplaceAll(e.Hint, id, shell.Word(name))
	c.Err = err
	return &c
}

// Pathless drops the path from err where the message has it already.
func Pathless(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
