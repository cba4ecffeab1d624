package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/launch/usage"
)

// flagError turns what pflag says of cmd's flags into an error that names the
// flag, and one that exists and looks like it.
func flagError(cmd *cobra.Command, err error) error {
	help := cmd.CommandPath() + " --help"
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := e.GetSpecifiedName()
		if s := e.GetSpecifiedShortnames(); s != "" {
			return usage.Errorf("%sunknown flag -%s", where(cmd), name).WithHint("%s", help)
		}
		u := usage.Errorf("%sunknown flag --%s", where(cmd), name)
		if near := nearestFlag(cmd, name); near != "" {
			return u.WithHint("did you mean --%s?", near)
		}
		if sub, _, err := cmd.Find([]string{name}); err == nil && sub != cmd {
			return u.WithHint("did you mean %s?", sub.CommandPath())
		}
		return u.WithHint("%s", help)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usage.Errorf("%s--%s needs a value", where(cmd), e.GetFlag().Name).WithHint("%s", help)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		cause := errors.Unwrap(e)
		text := e.Error()
		if cause != nil {
			text = fmt.Sprintf("--%s: %s", e.GetFlag().Name, valueError(e.GetFlag(), e.GetValue(), cause))
		}
		return usage.Errorf("%s%s", where(cmd), text)
	}
	return usage.Errorf("%s%v", where(cmd), err).WithHint("%s", help)
}

// valueError says what is wrong with a flag's value: the flag's own words
// where its type is one of ours, else what kind of value it takes.
func valueError(f *pflag.Flag, value string, cause error) string {
	switch f.Value.Type() {
	case "bool":
		return fmt.Sprintf("%q is neither true nor false", value)
	case "int", "int64":
		return fmt.Sprintf("%q is not a whole number", value)
	}
	return cause.Error()
}

// where is how a message about cmd begins: "daemon status: ", and nothing for
// carboy itself, as that is said already.
func where(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
}

func nearestFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return nearest(name, names)
}

// nearest returns the one of names that a typing error away is, or "". cobra's
// suggestions are for commands alone, in no order of nearness, and take as long
// as the words are.
func nearest(name string, names []string) string {
	best, dist := "", 3
	for _, n := range names {
		d := editDistance(name, n)
		if strings.HasPrefix(n, name) && len(name) > 1 {
			d = min(d, 1)
		}
		if d < dist && d < len(n) {
			best, dist = n, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of
// neighbours, on strings cut to a length at which it can't be slow.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
