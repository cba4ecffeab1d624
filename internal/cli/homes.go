package cli

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	passwdFile = "/etc/passwd"
	maxPasswd  = 1 << 20

	firstUser = 1000  // of people, as login.defs(5) has it
	nobody    = 65534 // and those from it on are no people's
)

// warnOfHome says in one line that a workspace is somebody's home, or holds
// one: much of what is in it is obeyed by programs that never ask.
func (a *app) warnOfHome(w *api.Workspace) {
	if w == nil || w.Source == "" || sandbox.WorkspaceMode(w.Mode) == sandbox.WorkspaceReadOnly {
		return
	}
	homes := []string{a.getenv("HOME")}
	if f, err := os.Open(passwdFile); err == nil { // without it, the caller's own is known
		homes = append(homes, passwdHomes(io.LimitReader(f, maxPasswd))...)
		_ = f.Close() // it was only read
	}
	what := homeIn(w.Source, homes)
	if what == "" {
		return
	}
	how := "look at what carboy apply holds back, and at all the rest, before you take it"
	if sandbox.WorkspaceMode(w.Mode) == sandbox.WorkspaceWritable {
		how = "what is written there is obeyed at once"
	}
	a.noteReason("home", "--workspace "+quoteArg(w.Source)+" "+what+": shells, keys and programs that start by themselves are in it; "+how+". Better name a project's directory")
}

// homeIn says what a directory is to homes: one of them, above one, or "".
func homeIn(dir string, homes []string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "" // the daemon says what is wrong with it
	}
	if dir == "/" {
		return "is the whole machine"
	}
	what := ""
	for _, home := range homes {
		if !filepath.IsAbs(home) {
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
