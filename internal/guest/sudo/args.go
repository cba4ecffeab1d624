package sudo

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// call is a command line of sudo, understood: the options are those of
// sudo(8).
type call struct {
	user  string // root
	dir   string
	env   []string // NAME=VALUE, before the command
	argv  []string
	keep  bool // -E: the caller's environment
	home  bool // -H: the target's home, -E or not
	login bool // -i
	shell bool // -s
	info  info
}

// info is what is asked for in place of a command.
type info int

const (
	nothing info = iota
	version
	help
	list
	validate
)

// usage is what sudo itself shows, of what there is here.
const usage = `usage: sudo [-EHnS] [-u user] [-D directory] [VAR=value ...] command [argument ...]
       sudo [-EHnS] [-u user] -i | -s [command [argument ...]]
       sudo -h | -l | -V | -v`

var (
	errUsage = errors.New(usage)
	longs    = map[string]string{
		"preserve-env": "E", "set-home": "H", "login": "i", "shell": "s", "non-interactive": "n", "stdin": "S", "help": "h", "list": "l",
		"version": "V", "validate": "v", "reset-timestamp": "k", "remove-timestamp": "K", "preserve-groups": "P", "bell": "B", "no-update": "N",
	}
	longValues = map[string]string{"user": "u", "chdir": "D", "prompt": "p", "close-from": "C", "command-timeout": "T"}
)

// parse understands args, what follows the name sudo.
func parse(args []string) (call, error) {
	c := call{user: account.Root}
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			return c.command(args[1:])
		case strings.HasPrefix(arg, "--"):
			rest, err := c.long(arg[2:], args[1:])
			if err != nil {
				return c, err
			}
			args = rest
		case len(arg) > 1 && arg[0] == '-':
			rest, err := c.short(arg[1:], args[1:])
			if err != nil {
				return c, err
			}
			args = rest
		default:
			return c.command(args)
		}
	}
	return c.command(nil)
}

// long takes an option that is a word, and returns what follows it.
func (c *call) long(word string, rest []string) ([]string, error) {
	name, value, given := strings.Cut(word, "=")
	if name == "preserve-env" && given {
		return nil, fmt.Errorf("--preserve-env=%s: not available here: use NAME=value, or -E for all of it", value)
	}
	if flag, ok := longs[name]; ok && !given {
		return rest, c.flag(flag)
	}
	flag, ok := longValues[name]
	if !ok {
		return nil, fmt.Errorf("--%.40s: not available here\n%w", name, errUsage)
	}
	if !given {
		if len(rest) == 0 {
			return nil, fmt.Errorf("--%s: needs a value\n%w", name, errUsage)
		}
		value, rest = rest[0], rest[1:]
	}
	return rest, c.value(flag, value)
}

// short takes options that are letters, and returns what follows them.
func (c *call) short(letters string, rest []string) ([]string, error) {
	for i := range len(letters) {
		flag := letters[i : i+1]
		if !strings.Contains("uDpCT", flag) {
			if err := c.flag(flag); err != nil {
				return nil, err
			}
			continue
		}
		value := letters[i+1:]
		if value == "" {
			if len(rest) == 0 {
				return nil, fmt.Errorf("-%s: needs a value\n%w", flag, errUsage)
			}
			value, rest = rest[0], rest[1:]
		}
		return rest, c.value(flag, value)
	}
	return rest, nil
}

func (c *call) flag(flag string) error {
	switch flag {
	case "E":
		c.keep = true
	case "H":
		c.home = true
	case "i":
		c.login = true
	case "s":
		c.shell = true
	case "h":
		c.info = help
	case "l":
		c.info = list
	case "V":
		c.info = version
	case "v", "k", "K": // nobody is asked for a password, so none is remembered
		c.info = max(c.info, validate)
	case "n", "S", "P", "B", "N": // and these are about asking, or hold anyway
	default:
		return fmt.Errorf("-%s: not available here\n%w", flag, errUsage)
	}
	return nil
}

func (c *call) value(flag, value string) error {
	switch flag {
	case "u":
		c.user = strings.TrimPrefix(value, "#")
	case "D":
		c.dir = value
	case "C", "T":
		return fmt.Errorf("-%s: not available here\n%w", flag, errUsage)
	}
	return nil
}

// command takes what follows the options.
func (c call) command(args []string) (call, error) {
	for len(args) > 0 && isVariable(args[0]) {
		c.env, args = append(c.env, args[0]), args[1:]
	}
	c.argv = args
	switch {
	case c.login && c.shell:
		return c, fmt.Errorf("-i and -s: only one of them\n%w", errUsage)
	case c.info == validate && len(args) > 0: // -k with a command runs it
		c.info = nothing
	case c.info == nothing && len(args) == 0 && !c.login && !c.shell:
		return c, errUsage
	}
	return c, nil
}

// isVariable reports whether an argument is NAME=VALUE.
func isVariable(arg string) bool {
	name, _, ok := strings.Cut(arg, "=")
	return ok && name != "" && !strings.ContainsAny(name, "/ -") && (name[0] < '0' || name[0] > '9')
}

// words returns what is executed for a, with the shell that the caller's
// environment names where it is to be the caller's.
func (c call) words(a account.Account, callers map[string]string) []string {
	if !c.login && !c.shell {
		return c.argv
	}
	words := []string{a.Shell}
	if c.login {
		words = append(words, "-l")
	} else if s := callers["SHELL"]; path.IsAbs(s) {
		words[0] = s
	}
	if len(c.argv) == 0 {
		return words
	}
	quoted := make([]string, len(c.argv))
	for i, arg := range c.argv {
		quoted[i] = quote(arg)
	}
	return append(words, "-c", strings.Join(quoted, " "))
}

// quote has a shell read arg as one word, as it stands; a dollar sign is left
// to it, as by sudo.
func quote(arg string) string {
	var b strings.Builder
	for _, c := range []byte(arg) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-$", c) >= 0 || c >= 0x80
		switch {
		case c == '\n': // a backslash before it would take it away
			b.WriteString("'\n'")
			continue
		case !plain:
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	if b.Len() == 0 {
		return "''"
	}
	return b.String()
}

// kept are the variables of the caller that a command gets without being asked
// to: what its terminal and language are.
var kept = []string{"TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ", "LS_COLORS", "DEBIAN_FRONTEND"}

// environment returns what the command gets on top of the sandbox's own.
func (c call) environment(callers map[string]string, caller account.Account, argv []string) map[string]string {
	env := map[string]string{}
	for name, value := range callers {
		if c.keep && mayPass(name, c.home) || slices.Contains(kept, name) || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	env["SUDO_USER"], env["SUDO_UID"], env["SUDO_GID"] = caller.Name, fmt.Sprint(caller.UID), fmt.Sprint(caller.GID)
	env["SUDO_COMMAND"] = strings.Join(argv, " ")
	for _, v := range c.env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// mayPass reports whether -E keeps a variable. Who a command is, and what
// decides which program that runs, is the target's.
func mayPass(name string, home bool) bool {
	switch name {
	case "PATH", "USER", "LOGNAME", "SHELL", "MAIL", "IFS", "ENV", "BASH_ENV", "CDPATH", "GLOBIGNORE", "PS4", "SHELLOPTS", "BASHOPTS":
		return false
	case "HOME":
		return !home
	}
	return !strings.HasPrefix(name, "LD_") && !strings.HasPrefix(name, "BASH_FUNC_") && !strings.HasPrefix(name, "SUDO_")
}
