package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Error is one mistake, and where it is.
type Error struct {
	Place
	Problem, Hint string
}

// Error is all of it, for people.
func (e *Error) Error() string {
	text := e.Where() + ": " + e.Problem
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Where is "FILE:LINE:COLUMN", as editors read it; what is not known is left out.
func (p Place) Where() string {
	text := shell.Word(p.File)
	if p.Line > 0 {
		text += fmt.Sprintf(":%d", p.Line)
		if p.Column > 0 {
			text += fmt.Sprintf(":%d", p.Column)
		}
	}
	return text
}

// maxProblems bounds how many mistakes are told at once.
const maxProblems = 50

// problems collects mistakes.
type problems struct {
	list []error
	more int
}

func (p *problems) add(at Place, hint, format string, args ...any) {
	p.err(&Error{Place: at, Problem: fmt.Sprintf(format, args...), Hint: hint})
}

// err adds a mistake that is not there yet: what a bottle says counts in all that extend it.
func (p *problems) err(err error) {
	if slices.ContainsFunc(p.list, func(o error) bool { return o.Error() == err.Error() }) {
		return
	}
	if len(p.list) >= maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, err)
}

// join adds those of another collection.
func (p *problems) join(o *problems) {
	for _, err := range o.list {
		p.err(err)
	}
	p.more += o.more
}

func (p *problems) any() bool { return len(p.list) > 0 }

func (p *problems) result() error {
	if p.more > 0 {
		return errors.Join(append(p.list, fmt.Errorf("and %d more mistakes", p.more))...)
	}
	if len(p.list) == 1 {
		return p.list[0]
	}
	return errors.Join(p.list...)
}

// Problems are the mistakes within an error of this package, one by one.
func Problems(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the tree is walked here
		var all []error
		for _, e := range many.Unwrap() {
			all = append(all, Problems(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Told makes an error of this package one for people: the mistakes in one line, and what to
// do about the first.
func Told(err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); ok || err == nil {
		return err
	}
	list := Problems(err)
	if e, ok := errors.AsType[*Error](err); ok && len(list) == 1 {
		out := sandbox.Errorf(sandbox.Invalid, "%s: %s", e.Where(), e.Problem)
		if e.Hint != "" {
			return out.WithHint("%s", e.Hint)
		}
		return out
	}
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.Error()
	}
	return sandbox.Errorf(sandbox.Invalid, "%s", strings.Join(texts, "; ")).WithHint("carboy manifest check has a line for each")
}

// quoted makes a text of a file fit for an error.
func quoted(s string) string { return policy.Quoted(s) }
