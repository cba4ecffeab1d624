package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/near"
)

// flagError turns what pflag says of cmd's flags into an error that names the
// flag, and one that exists and looks like it.
func flagError(cmd *cobra.Command, err error) error {
	help := cmd.CommandPath() + " --help"
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := e.GetSpecifiedName()
		if s := e.GetSpecifiedShortnames(); s != "" {
			u := usage.Errorf("%sunknown flag -%s", where(cmd), name)
			if ours := flagWord(name); ours != "" && cmd.Flags().Lookup(ours) != nil {
				return u.WithHint("that is --%s here", ours)
			}
			return u.WithHint("%s", help)
		}
		u := usage.Errorf("%sunknown flag --%s", where(cmd), name)
		if name == "rm" && cmd.Name() == "run" {
			return u.WithHint("leave it out: the sandbox of a run is removed with its command")
		}
		if n := nearestFlag(cmd, name); n != "" {
			return u.WithHint("did you mean --%s?", n)
		}
		if sub, _, err := cmd.Find([]string{name}); err == nil && sub != cmd {
			return u.WithHint("did you mean %s?", sub.CommandPath())
		}
		if cmd.Annotations[ofAgent] != "" {
			return u.WithHint("the agent's own flags stand after --: %s -- --%s", cmd.CommandPath(), name)
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

// flagWord is what a flag of one letter that programs like carboy have is called here;
// "" where it has no counterpart.
func flagWord(letter string) string {
	switch letter {
	case "v":
		return "mount"
	case "e":
		return "env"
	case "m":
		return "memory"
	}
	return ""
}

// commandWord is what a command that programs like carboy have is called here; "" where
// none is.
func commandWord(name string) string {
	switch name {
	case "list":
		return "ls"
	case "delete", "remove":
		return "rm"
	case "top":
		return "ps"
	}
	return ""
}

func nearestFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return near.Of(name, names)
}
