package policy

import (
	"errors"
	"fmt"
)

// Error is one thing that is wrong with a policy, or with what was to become
// part of one. Parse and Compile join as many as they find; errors.As gives
// the first, and Problems all of them.
type Error struct {
	Where   string // "rules[2].ports[0]"; with a line before it where there is a text: "line 7: rules[2].ports[0]"
	Problem string // "\"0\" is no port", lower case
	Hint    string // what to write instead; "" where Problem says it
}

// Error returns all three, for people.
func (e *Error) Error() string {
	text := e.Problem
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Problems lists every Error within err, in the order of the policy; nil
// where there is none.
func Problems(err error) (all []*Error) {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok { //nolint:errorlint // the tree is walked here, each node once
		return []*Error{e}
	}
	switch e := err.(type) { //nolint:errorlint // see above
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, Problems(inner)...)
		}
	case interface{ Unwrap() error }:
		return Problems(e.Unwrap())
	}
	return all
}

// maxProblems is how many are collected: a text of nothing but mistakes makes
// no longer an error than somebody reads.
const maxProblems = 50

// Errors collects what is wrong, and where.
type Errors struct {
	errs []error
	more int
}

// Add notes an Error.
func (p *Errors) Add(where, problem, hint string) {
	if len(p.errs) == maxProblems {
		p.more++
		return
	}
	p.errs = append(p.errs, &Error{Where: where, Problem: problem, Hint: hint})
}

// Addf is Add, with a problem to format.
func (p *Errors) Addf(where, hint, format string, args ...any) {
	p.Add(where, fmt.Sprintf(format, args...), hint)
}

// TooMany adds where there are more than most, and reports whether there are.
func (p *Errors) TooMany(where string, n, most int) bool {
	if n > most {
		p.Addf(where, "", "%d of them: %d are the most", n, most)
	}
	return n > most
}

// Err joins what was collected; nil where that is nothing.
func (p *Errors) Err() error {
	if p.more > 0 {
		return errors.Join(append(p.errs, &Error{Problem: fmt.Sprintf("and %d more", p.more)})...)
	}
	return errors.Join(p.errs...)
}

// Quoted makes a text from outside fit for an error: bounded, and without
// anything that a terminal would act on.
func Quoted(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%+q...", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}

// Note tells of something that an import could not carry over as it was.
type Note struct {
	Where string `json:"where"` // the field, "network.allowedDomains"
	Text  string `json:"text"`  // lower case
}

// String returns both, for people.
func (n Note) String() string { return n.Where + ": " + n.Text }
