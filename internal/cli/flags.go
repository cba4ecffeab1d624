package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/cache"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// addSpec adds the flags that say what a sandbox is like.
func addSpec(fs *pflag.FlagSet, s *launch.Spec) {
	fs.SortFlags = false
	fs.Var(nameValue{&s.Name}, "name", "`NAME` name it; one is made up otherwise")
	fs.StringVar(&s.Isolation, "isolation", "", "`WALL[,WALL...]` wall to build; more of them: the stronger ones will do as well"+isDefault(sandbox.DefaultIsolation))
	fs.StringVar(&s.Image, "image", "", "`IMAGE` root file system: a reference, a path, or host, this machine's own programs"+isDefault(sandbox.DefaultImage))
	fs.StringVar(&s.Template, "template", "", "`NAME` start from that template: NAME, NAME:TAG or OWNER/NAME")
	fs.StringVar(&s.Snapshot, "snapshot", "", "`ID` start from the snapshot of that ID, over its image")
	fs.Var(choiceValue{&s.Pull, []string{launch.PullMissing, launch.PullAlways, launch.PullNever}}, "pull", "`WHEN` fetch the image if it is missing, always or never"+isDefault(launch.PullMissing))
	fs.StringVar(&s.Workspace, "workspace", "", "`DIR[:rw|:ro]` show a copy-on-write view of DIR at /workspace; :rw the tree itself")
	fs.StringArrayVar(&s.Mounts, "mount", nil, "`HOST:GUEST[:ro]` show the directory HOST at GUEST, too")
	fs.StringArrayVar(&s.Volumes, "volume", nil, "`NAME:PATH[:ro]` show the volume NAME at PATH; at /workspace it is the workspace")
	fs.Var(wordsValue{&s.Caches}, "cache", "`TOOL[,TOOL...]` keep its caches from run to run, for that workspace: "+strings.Join(cache.Names(), ", "))
	fs.StringArrayVar(&s.Homes, "home", nil, "`PROGRAM=PATH[,PATH...]` keep those directories of its home from run to run, for that workspace")
	fs.BoolVar(&s.NoProject, "no-project", false, "leave out the project's own file, .carboy.toml of the workspace")
	fs.BoolVar(&s.ReadOnly, "read-only", false, "let nobody inside write but to /workspace, mounts, /tmp and the home")
	fs.StringVar(&s.User, "user", "", "`USER` run commands as user or root"+isDefault(sandbox.DefaultUser))
	fs.Var(cpusValue{&s.CPUs}, "cpus", "`N` how many processors it may use, such as 0.5"+isDefault(strconv.FormatFloat(sandbox.DefaultCPUs, 'g', -1, 64)))
	fs.Var(sizeValue{&s.Memory}, "memory", "`SIZE` how much memory, such as 512m or 1g"+isDefault(term.FormatSize(sandbox.DefaultMemory)))
	fs.Var(countValue{&s.PIDs}, "pids", "`N` how many processes and threads"+isDefault(strconv.Itoa(sandbox.DefaultPIDs)))
	fs.Var(sizeValue{&s.Disk}, "disk", "`SIZE` how much it may write"+isDefault(term.FormatSize(sandbox.DefaultDisk)))
	fs.Var(choiceValue{&s.Network, []string{sandbox.NetworkOff, sandbox.NetworkOn}}, "network", "`NETWORK` off, or on: the public internet"+isDefault("off, or what --allow and --policy say"))
	fs.StringArrayVar(&s.Allow, "allow", nil, "`WHAT` let it reach that: a preset, host, address, range or service:NAME; see carboy policy presets")
	fs.StringVar(&s.Policy, "policy", "", "`FILE` let it reach what the policy in FILE says")
	fs.StringArrayVar(&s.Secrets, "secret", nil, "`NAME[=FROM]` let it use a secret where a rule says; the value stays outside")
	fs.StringArrayVarP(&s.Publish, "publish", "p", nil, "`[HOSTPORT:]PORT` open PORT of it on this machine's loopback, for you alone")
	fs.Var(countValue{&s.MaySpawn}, "may-spawn", "`N` let programs inside spawn up to N pods at once, by tools at its gate")
	addEnv(fs, &s.Env)
	fs.StringArrayVar(&s.Labels, "label", nil, "`KEY=VALUE` attach a label")
	fs.Var(durationValue{&s.TTL}, "ttl", "`DURATION` stop it after that long, such as 90s, 30m or 2h (default never)")
}

func isDefault(s string) string { return " (default " + s + ")" }

// addEnv adds the flags that say a command's variables.
func addEnv(fs *pflag.FlagSet, e *launch.Env) {
	fs.StringArrayVar(&e.Vars, "env", nil, "`KEY[=VALUE]` set a variable; without VALUE, to what it is here")
	fs.StringArrayVar(&e.Files, "env-file", nil, "`FILE` set the variables in FILE, one KEY=VALUE a line")
}

// nameValue is a flag that holds a new sandbox's name. An empty one, such as of a variable
// that is not set, is no wish for a name that is made up; the request checks any other.
type nameValue struct{ name *string }

func (v nameValue) String() string { return "" }
func (v nameValue) Type() string   { return "name" }
func (v nameValue) Set(s string) error {
	if s == "" {
		return fmt.Errorf(`"" is not a name: use 1 to %d of a-z, 0-9 and -, a letter first`, sandbox.MaxName)
	}
	*v.name = s
	return nil
}

// cpusValue is a flag that holds a positive number of processors.
type cpusValue struct{ n *float64 }

func (v cpusValue) String() string { return "" }
func (v cpusValue) Type() string   { return "number" }
func (v cpusValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n > 1<<16 || !(n > 0) { // NaN is not more than zero either
		return fmt.Errorf("%q is not a number of processors: use one such as 2 or 0.5", s)
	}
	*v.n = n
	return nil
}

// countValue is a flag that holds a positive whole number.
type countValue struct{ n *int64 }

func (v countValue) String() string { return "" }
func (v countValue) Type() string   { return "number" }
func (v countValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a whole number above zero", s)
	}
	*v.n = n
	return nil
}

// durationValue is a flag that holds a positive duration of whole milliseconds.
type durationValue struct{ d *time.Duration }

func (v durationValue) String() string { return "" }
func (v durationValue) Type() string   { return "duration" }
func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case d == 0 && err == nil:
		return fmt.Errorf("%q is too short: the least is 1ms; leave it out for the default", s)
	case s != "" && strings.Trim(s, "0123456789") == "":
		return fmt.Errorf("%q has no unit: use %ss, %sm or %sh", s, s, s, s)
	case err != nil:
		return fmt.Errorf("%q is not a duration: use one such as 90s, 30m or 2h", s)
	case d < time.Millisecond:
		return fmt.Errorf("%q is too short: the least is 1ms", s)
	}
	*v.d = d
	return nil
}

// sizeValue is a flag that holds a size in bytes.
type sizeValue struct{ n *int64 }

func (v sizeValue) String() string {
	if v.n == nil || *v.n == 0 {
		return ""
	}
	return term.FormatSize(*v.n)
}
func (v sizeValue) Type() string { return "size" }
func (v sizeValue) Set(s string) (err error) {
	n, err := term.ParseSize(s)
	if err == nil {
		*v.n = n
	}
	return err
}

// addJSON adds --json.
func (a *app) addJSON(fs *pflag.FlagSet) {
	fs.BoolVar(&a.JSON, "json", false, "write JSON, also of errors and notes")
}

// wordsValue is a flag that holds words with commas between them, and adds those of
// each time that it is given.
type wordsValue struct{ words *[]string }

func (v wordsValue) String() string { return "" }

func (v wordsValue) Type() string { return "words" }

func (v wordsValue) Set(s string) error {
	words := strings.Split(s, ",")
	if slices.Contains(words, "") {
		return fmt.Errorf("%q has a word that is empty", s)
	}
	*v.words = append(*v.words, words...)
	return nil
}

// choiceValue is a flag that holds one of several words.
type choiceValue struct {
	s     *string
	words []string
}

func (v choiceValue) String() string { return "" }

func (v choiceValue) Type() string { return "word" }

func (v choiceValue) Set(s string) error {
	if !slices.Contains(v.words, s) {
		last := len(v.words) - 1
		return fmt.Errorf("%q is not known here: use %s or %s", s, strings.Join(v.words[:last], ", "), v.words[last])
	}
	*v.s = s
	return nil
}

// filledValue is a text, or one of several, of which "" is none: such as a variable of a
// script's that is not set. To take it for no flag at all would do something else than asked.
type filledValue struct{ pflag.Value }

func (v filledValue) Set(s string) error {
	if s == "" {
		return errors.New("the value is empty: give one, or leave the flag out")
	}
	return v.Value.Set(s)
}

// mayBeEmpty are flags of text for which "" is as good as any other.
func mayBeEmpty() []string { return []string{"reason"} }

// refuseEmpty has the flags of text of cmd, and of those below it, refuse "".
func refuseEmpty(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "string", "stringArray", "stringSlice":
			if !slices.Contains(mayBeEmpty(), f.Name) {
				f.Value = filledValue{f.Value}
			}
		}
	})
	for _, c := range cmd.Commands() {
		refuseEmpty(c)
	}
}

// entrypointValue is --entrypoint, of which "" is a value, too.
type entrypointValue struct{ s **string }

func (v entrypointValue) String() string { return "" }

func (v entrypointValue) Type() string { return "program" }

func (v entrypointValue) Set(s string) error {
	*v.s = &s
	return nil
}

// addCwd adds --cwd, which docker calls --workdir.
func addCwd(fs *pflag.FlagSet, cwd *string) {
	fs.StringVarP(cwd, "cwd", "w", "", "`DIR` run in that directory (default /workspace where there is one, else home)")
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "workdir" {
			name = "cwd"
		}
		return pflag.NormalizedName(name)
	})
}

// addCommand adds the flags that say how a command runs.
func addCommand(fs *pflag.FlagSet, f *relay.Options) {
	addAttached(fs, f)
	fs.BoolVarP(&f.Detach, "detach", "d", false, "leave it running")
}

// addAttached adds those of a command that is waited for.
func addAttached(fs *pflag.FlagSet, f *relay.Options) {
	fs.BoolVarP(&f.Stdin, "interactive", "i", false, "pass stdin on")
	fs.BoolVarP(&f.TTY, "tty", "t", false, "give it a terminal, whose output is passed on as it is")
	fs.Var(durationValue{&f.Timeout}, "timeout", "`DURATION` kill it and all that it started after that long, such as 90s or 2h")
}

// noteTerminal notes what of a command's terminal and stdin was given, with whichever value.
func noteTerminal(cmd *cobra.Command, o *relay.Options) {
	interactive := cmd.Flags().Changed("interactive")
	o.Said = interactive || cmd.Flags().Changed("tty")
	o.Closed = interactive && !o.Stdin
}
