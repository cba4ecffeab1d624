// Package reach is how a program comes to the daemon of a home: where it answers, who
// it is, how one is started where there is none, and what its log says. It links no
// part of the daemon itself.
package reach

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Files of a home that say who its daemon is: below its State, but for the socket.
const (
	LockName = "daemon.lock"
	PIDName  = "daemon.pid"

	logName    = "daemon.log"
	socketName = "carboy.sock"
)

// Socket returns the path of the unix socket of a home's daemon.
func Socket(dirs home.Dirs) string { return filepath.Join(dirs.Run, socketName) }

// logPath returns the path of the log of a home's daemon.
func logPath(dirs home.Dirs) string { return filepath.Join(dirs.State, logName) }

// PID reads from the file at path who has, or had, the home.
func PID(path string) (int, bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil || len(b) >= 32 {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid, err == nil && pid > 0
}

// Gone returns once the process of the home's daemon has ended, or the cause of
// ctx; at once where there is none. A daemon that leaves has its home for some
// time after it has stopped to answer. One whose socket is elsewhere, as it was started
// with another XDG_RUNTIME_DIR, is a Conflict at once: nobody here can ask it to leave.
func Gone(ctx context.Context, dirs home.Dirs) error {
	pid, ok := PID(filepath.Join(dirs.State, PIDName))
	if !ok {
		return nil
	}
	h, err := procid.OpenPID(pid)
	if err != nil {
		return nil
	}
	defer h.Close()
	// The number may be another process's by now.
	if !hasOpen(pid, filepath.Join(dirs.State, LockName)) {
		return nil
	}
	if err := elsewhere(pid, dirs); err != nil {
		return err
	}
	return h.Done(ctx)
}

// elsewhere says where the socket of a home's daemon is, if that is not where dirs has
// it, as far as can be seen.
func elsewhere(pid int, dirs home.Dirs) error {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(proc, "environ"))
	var st unix.Stat_t
	if err != nil || unix.Stat(proc, &st) != nil {
		return nil
	}
	vars := map[string]string{}
	for kv := range strings.SplitSeq(string(text), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	theirs, err := home.Find(func(name string) string { return vars[name] }, int(st.Uid))
	if err != nil || theirs.State != dirs.State || theirs.Run == dirs.Run {
		return nil
	}
	dir := "XDG_RUNTIME_DIR=" + shell.Word(vars["XDG_RUNTIME_DIR"])
	how := dir + " carboy daemon stop"
	if vars["XDG_RUNTIME_DIR"] == "" {
		dir, how = "no XDG_RUNTIME_DIR", "env -u XDG_RUNTIME_DIR carboy daemon stop"
	}
	return sandbox.Errorf(sandbox.Conflict, "the daemon of %s, with pid %d, has its socket elsewhere: it was started with %s", dirs.State, pid, dir).
		WithHint("%s", how)
}

// hasOpen reports whether a process has a file open, as far as can be seen.
func hasOpen(pid int, path string) bool {
	var want, got unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if unix.Stat(filepath.Join(dir, fd.Name()), &got) == nil && got.Dev == want.Dev && got.Ino == want.Ino {
			return true
		}
	}
	return false
}
