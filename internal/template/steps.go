package template

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Statuses by which our own scripts answer; others are errors.
const (
	exitDone = 0
	exitMade = 10 // something was written
	exitDir  = 11 // the target is a directory

	maxValue = 64 << 10 // bytes of an evaluated text
)

// Scripts that run as root in a guest, whose arguments are never a part of
// their text. They need a shell and what a base system has.
const (
	// makeDir makes a directory and those above it for a user.
	makeDir = `[ -d "$1" ] && exit 0
first=$1
above=$(dirname -- "$first")
while [ ! -d "$above" ] && [ "$above" != / ] && [ "$above" != . ]; do first=$above; above=$(dirname -- "$first"); done
mkdir -p -- "$1" && chown -R -- "$2" "$first" && exit 10`

	// makeUser makes an account, as Debian or Alpine has it.
	makeUser = `id -u -- "$1" >/dev/null 2>&1 && exit 0
if command -v useradd >/dev/null 2>&1; then useradd --create-home -- "$1" && exit 10
else adduser -D -- "$1" </dev/null && exit 10; fi`

	// makeTarget makes the directory that something is copied into.
	makeTarget = `mkdir -p -- "$1"`

	// makeAbove does so for one file, unless its own name is a directory's.
	makeAbove = `[ -d "$1" ] && exit 11
mkdir -p -- "$2"`

	// print prints a text in which variables were expanded.
	print = `eval "printf '%s' \"$1\""`
)

// script is one of those, with its arguments.
func script(text string, args ...string) Command {
	return Command{Argv: append([]string{"/bin/sh", "-c", text, "sh"}, args...), User: root, Cwd: "/"}
}

// apply runs a step, and says whether it wrote anything in its sandbox.
func (r *run) apply(ctx context.Context, st Step) (wrote bool, err error) {
	switch strings.ToUpper(st.Type) {
	case "RUN":
		return true, r.runStep(ctx, st)
	case "COPY", "ADD":
		return true, r.copyStep(ctx, st)
	case "WORKDIR":
		return r.workdir(ctx, st.Args[0])
	case "USER":
		return r.user(ctx, st.Args[0])
	}
	return false, r.env(ctx, st.Args)
}

// runStep runs a command, as the build's user or as the one that is named.
func (r *run) runStep(ctx context.Context, st Step) error {
	cmd := r.command(st.Args[0])
	if len(st.Args) > 1 && st.Args[1] != "" {
		cmd.User = st.Args[1]
	}
	began := time.Now()
	exit, err := r.exec(ctx, cmd, r.output)
	if err != nil {
		return err
	}
	if exit.Code != exitDone {
		refused, hint := r.refused(ctx, began)
		return &buildError{step: r.step, msg: fmt.Sprintf("failed to run command %.200q: %s%s", st.Args[0], exit.Text, refused), hint: hint}
	}
	return nil
}

func (r *run) output(b []byte) {
	if r.j != nil {
		r.j.output(b)
	}
}

// command is one of the build's, in its context. A login shell sets the PATH
// anew, so one that was set is set again.
func (r *run) command(text string) Command {
	return Command{Shell: shell.WithPath(text, r.at.Env), User: r.at.User, Cwd: r.at.Cwd, Env: r.at.Env}
}

func (r *run) exec(ctx context.Context, cmd Command, out func([]byte)) (Exit, error) {
	if err := r.open(ctx); err != nil {
		return Exit{}, err
	}
	return r.guest.Run(ctx, cmd, out)
}

// tell runs a script of ours and returns its status.
func (r *run) tell(ctx context.Context, doing, text string, args ...string) (int, error) {
	exit, err := r.exec(ctx, script(text, args...), r.output)
	if err != nil {
		return 0, err
	}
	switch exit.Code {
	case exitDone, exitMade, exitDir:
		return exit.Code, nil
	}
	return 0, r.fail("failed to %s: %s", doing, exit.Text)
}

func (r *run) workdir(ctx context.Context, dir string) (bool, error) {
	dir, err := r.absolute(ctx, dir, "/")
	if err != nil {
		return false, err
	}
	code, err := r.tell(ctx, "make the directory "+dir, makeDir, dir, r.at.User)
	if err != nil {
		return false, err
	}
	r.at.Cwd = dir
	return code == exitMade, nil
}

// absolute evaluates a path and makes it absolute: below the build's
// directory, or below other where that has none.
func (r *run) absolute(ctx context.Context, dir, other string) (string, error) {
	dir, err := r.evaluate(ctx, dir)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(dir) {
		if r.at.Cwd != "" {
			other = r.at.Cwd
		}
		dir = path.Join(other, dir)
	}
	return path.Clean(dir), nil
}

func (r *run) user(ctx context.Context, name string) (bool, error) {
	name, err := r.evaluate(ctx, name)
	if err != nil {
		return false, err
	}
	name, group, grouped := strings.Cut(name, ":")
	if !validUser(name) || grouped && group != name {
		return false, r.fail("USER %.80q: an account's name, whose own group goes with it", name)
	}
	r.at.User = name
	if name == root || name == defaultUser || strings.Trim(name, "0123456789") == "" {
		return false, nil // these are there in every sandbox
	}
	code, err := r.tell(ctx, "make the user "+name, makeUser, name)
	return code == exitMade, err
}

func validUser(name string) bool {
	return name != "" && len(name) <= 32 && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
}

func (r *run) env(ctx context.Context, args []string) error {
	next := r.at.Context.clone()
	for i := 0; i+1 < len(args); i += 2 {
		name := args[i]
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return r.fail("ENV %.80q: not a variable's name", name)
		}
		value, err := r.evaluate(ctx, args[i+1])
		if err != nil {
			return err
		}
		next.Env[name] = value
	}
	if n := len(next.Env); n > sandbox.MaxEnv {
		return r.fail("ENV: %d variables are too many", n)
	}
	r.at.Context = next
	return nil
}

// evaluate expands the variables in a text as a shell of the guest does, with
// the build's environment. Nothing is run by it.
func (r *run) evaluate(ctx context.Context, text string) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$(", "\\$(").Replace(text)
	cmd := script(print, quoted)
	cmd.Env = r.at.Env
	var out strings.Builder
	exit, err := r.exec(ctx, cmd, func(b []byte) {
		if out.Len() < maxValue {
			out.Write(b)
		}
	})
	if err != nil {
		return "", err
	}
	if exit.Code != exitDone || out.Len() > maxValue || strings.ContainsRune(out.String(), 0) {
		return "", r.fail("failed to expand the variables in %.80q: %s", text, exit.Text)
	}
	return out.String(), nil
}
