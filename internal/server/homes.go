package server

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	passwdFile = "/etc/passwd"
	maxPasswd  = 1 << 20

	firstUser = 1000  // of people, as login.defs(5) has it
	nobody    = 65534 // and those from it on are no people's
)

// knownHomes are those of root and of people, and that of the daemon's user.
func knownHomes() []string {
	homes := []string{os.Getenv("HOME")}
	if f, err := os.Open(passwdFile); err == nil { // without it, one is known
		homes = append(homes, passwdHomes(io.LimitReader(f, maxPasswd))...)
		_ = f.Close() // it was only read
	}
	return homes
}

// warnings says, in a sentence for each, which directories that a sandbox is
// given are somebody's home, or hold one: much of what is in it is obeyed by
// programs that never ask.
func warnings(spec *sandbox.Spec, homes []string) []string {
	var list []string
	warn := func(flag, dir, how string) {
		if what := homeIn(dir, homes); what != "" {
			list = append(list, fmt.Sprintf("%s %s %s: shells, keys and programs that start by themselves are in it; %s. Better name a project's directory", flag, term.Escape(dir), what, how))
		}
	}
	const atOnce = "what is written there is obeyed at once"
	switch spec.Workspace.Mode {
	case sandbox.WorkspaceCOW:
		warn("workspace", spec.Workspace.Source.Path, "look at what carboy apply holds back, and at all the rest, before you take it")
	case sandbox.WorkspaceWritable:
		warn("workspace", spec.Workspace.Source.Path, atOnce)
	}
	for _, m := range spec.Mounts {
		if !m.ReadOnly {
			warn("mount", m.Source.Path, atOnce)
		}
	}
	return list
}

// homeIn says what a directory, by a path without links, is to homes: one of
// them, above one, or "".
func homeIn(dir string, homes []string) string {
	what := ""
	for _, home := range homes {
		if dir == "" || !filepath.IsAbs(home) {
			continue
		}
		home, err := filepath.EvalSymlinks(home)
		switch {
		case err != nil || home == "/":
		case home == dir:
			return "is a home"
		case strings.HasPrefix(home, dir+"/"):
			what = "has homes in it"
		}
	}
	return what
}

// passwdHomes returns the homes of root and of people in a passwd(5) file.
func passwdHomes(r io.Reader) []string {
	var homes []string
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		fields := strings.Split(sc.Text(), ":")
		if len(fields) != 7 {
			continue
		}
		uid, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && (uid == 0 || uid >= firstUser && uid != nobody) {
			homes = append(homes, fields[5])
		}
	}
	return homes
}
