package layer

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// refusal is why a layer is refused, without the entry's name.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...)}
}

// inLayer makes err, which arose outside of an entry, fit to return.
func inLayer(err error) error { return explain("layer", err) }

// inEntry makes err, which arose at an entry, fit to return.
func inEntry(name string, err error) error {
	return explain("layer entry "+quote(name), err)
}

func explain(where string, err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return sandbox.Errorf(sandbox.Invalid, "%s: %s", where, r.reason)
	}
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	switch {
	case is(err, unix.ENOSPC, unix.EDQUOT):
		return causedBy(err, sandbox.Errorf(sandbox.Exhausted, "%s: no space left to unpack it", where).
			WithHint("carboy image gc"))
	case is(err, unix.EMLINK):
		return causedBy(err, sandbox.Errorf(sandbox.Exhausted, "%s: the file system allows a file no more hard links", where))
	}
	return fmt.Errorf("%s: %w", where, err)
}

// unsupported says that this machine can't do what the layer needs.
func unsupported(err error, hint, format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Unsupported, format, args...)
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return causedBy(err, e)
}

func causedBy(err error, e *sandbox.Error) error {
	e.Err = err
	return e
}

// quote makes a name of the layer fit for a message.
func quote(name string) string { return fmt.Sprintf("%.200q", name) }

// named is how many names a note gives.
const named = 3

// notes gathers what was left out, by kind. The kinds are this package's own
// words, so there are few.
type notes struct {
	kinds []string // in the order of their first
	of    map[string]*note
}

type note struct {
	count int
	names []string
}

func (n *notes) add(kind, name string) {
	if n.of == nil {
		n.of = map[string]*note{}
	}
	k := n.of[kind]
	if k == nil {
		k = &note{}
		n.of[kind] = k
		n.kinds = append(n.kinds, kind)
	}
	if k.count++; len(k.names) < named {
		k.names = append(k.names, quote(name))
	}
}

// lines returns a line for each kind.
func (n *notes) lines() []string {
	var lines []string
	for _, kind := range n.kinds {
		k := n.of[kind]
		line := kind + ": " + strings.Join(k.names, ", ")
		if more := k.count - len(k.names); more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, line)
	}
	return lines
}
