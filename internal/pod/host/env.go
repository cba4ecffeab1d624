// Package host runs pods as plain processes of this machine, as the system does from which pods
// come: a program that is looked up, started in a process group of its own, and found by a token in
// its environment. What such a pod may do with files only those tools keep to that ask;
// there is no wall.
//
// It refuses to touch what others made: a directory or a socket that was there stays as it is.
package host

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The variables that are read, and those by which the system is known from which pods come.
const (
	RuntimeVariable = "CARBOY_POD_RUNTIME_DIR"
	CommandVariable = "CARBOY_POD_COMMAND"

	olderRuntime = "INSOMNIA_RUNTIME_DIR"
	olderHome    = "INSOMNIA_HOME"
	olderCommand = "INSOMNIA_POD_COMMAND"
)

// RuntimeDir is the directory in which pods have theirs: the first of CARBOY_POD_RUNTIME_DIR,
// INSOMNIA_RUNTIME_DIR and the directory run in INSOMNIA_HOME, else pods in carboy's own runtime
// directory. A variable that is empty is as one that is not set. Nothing is created.
func RuntimeDir(getenv func(string) string, uid int) (string, error) {
	for _, v := range []struct{ name, below string }{{RuntimeVariable, ""}, {olderRuntime, ""}, {olderHome, "run"}} {
		dir := getenv(v.name)
		if dir == "" {
			continue
		}
		if !filepath.IsAbs(dir) {
			return "", sandbox.Errorf(sandbox.Invalid, "%s is %q: not an absolute path", v.name, dir).WithHint("unset it, or correct it")
		}
		return filepath.Join(dir, v.below), nil
	}
	dirs, err := home.Find(getenv, uid)
	if err != nil {
		return "", err
	}
	return filepath.Join(dirs.Run, "pods"), nil
}

// Command is the program of a pod, as an absolute path: what CARBOY_POD_COMMAND, else
// INSOMNIA_POD_COMMAND, names, looked up in PATH where it is a name alone.
func Command(getenv func(string) string) (string, error) {
	variable := CommandVariable
	name := getenv(variable)
	if name == "" {
		variable = olderCommand
		name = getenv(variable)
	}
	if name == "" {
		return "", sandbox.Errorf(sandbox.Unsupported, "there is no program for pods").WithHint("set %s to one", CommandVariable)
	}
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			return "", sandbox.Errorf(sandbox.Invalid, "%s is %q: neither a name nor an absolute path", variable, name).WithHint("correct it")
		}
		if !executable(name) {
			return "", sandbox.Errorf(sandbox.Invalid, "%s is %q, which is no program that can be started", variable, name).WithHint("correct it")
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		if p := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(p) {
			return p, nil
		}
	}
	return "", sandbox.Errorf(sandbox.Invalid, "%s is %q, which is in no directory of PATH", variable, name).WithHint("set it to an absolute path")
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}
