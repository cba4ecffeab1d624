package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var shareProbes = []probe{
	{name: "read-only-tree", run: readOnlyTree},
	{name: "git-hooks", run: gitHooks},
	{name: "git-pinned", run: gitPinned},
	{name: "links-out", run: linksOut},
	{name: "leases", run: leases},
}

// readOnlyTree writes where nothing may be written.
func readOnlyTree(t *trial) {
	for _, dir := range []string{facts.ReadOnly, facts.Tools} {
		name := filepath.Join(dir, "written")
		ways := map[string]func() error{
			"write":    func() error { return touch(name) },
			"append":   func() error { return appendTo(filepath.Join(dir, "file")) },
			"truncate": func() error { return os.Truncate(filepath.Join(dir, "file"), 0) },
			"mkdir":    func() error { return os.Mkdir(name+".d", 0o755) },
			"symlink":  func() error { return os.Symlink("/", name+".link") },
			"rename":   func() error { return os.Rename(filepath.Join(dir, "file"), name+".moved") },
			"remove":   func() error { return os.Remove(filepath.Join(dir, "file")) },
			"chmod":    func() error { return os.Chmod(filepath.Join(dir, "file"), 0o777) },
			"utimes":   func() error { return unix.Utimes(filepath.Join(dir, "file"), make([]unix.Timeval, 2)) },
			"xattr":    func() error { return unix.Setxattr(filepath.Join(dir, "file"), "user.probe", []byte("x"), 0) },
			"remount":  func() error { return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "") },
		}
		for what, way := range ways {
			if way() == nil {
				t.find("%s in %s went through", what, dir)
			}
		}
	}
	t.note("nothing can be written")
}

func appendTo(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("x")
	return err
}

// gitHooks writes what git on the host would run or obey.
func gitHooks(t *trial) {
	git := filepath.Join(facts.Writable, ".git")
	if _, err := os.Stat(git); err != nil {
		t.note("no repository: %v", err)
		return
	}
	for _, name := range []string{"hooks/pre-commit", "hooks/post-checkout", "commondir", "info/attributes", "config.worktree", "HEAD.lock/../config", "modules/config", "worktrees/config", "objects/info/alternates"} {
		if err := os.WriteFile(filepath.Join(git, name), []byte("#!/bin/sh\n"), 0o755); err == nil {
			t.find(".git/%s was written", name)
		}
	}
	if appendTo(filepath.Join(git, "config")) == nil {
		t.find(".git/config was written")
	}
	if os.Rename(filepath.Join(git, "hooks"), filepath.Join(git, "hooks.old")) == nil {
		t.find(".git/hooks was moved")
	}
	t.note("hooks and configuration are closed")
}

// gitPinned puts another repository in the place of the host's.
func gitPinned(t *trial) {
	git := filepath.Join(facts.Writable, ".git")
	for _, way := range []func() error{
		func() error { return os.Rename(git, git+".old") },
		func() error { return os.Symlink("/tmp", git) },
		func() error {
			return unix.Renameat2(unix.AT_FDCWD, git, unix.AT_FDCWD, facts.Writable+"/sub", unix.RENAME_EXCHANGE)
		},
	} {
		if way() == nil {
			t.find(".git was moved away")
		}
	}
	t.note("it stays in its place")
}

// linksOut joins what is shared with what is not.
func linksOut(t *trial) {
	for _, from := range []string{facts.ReadOnly + "/file", facts.Tools + "/probe", "/etc/passwd"} {
		name := filepath.Join(facts.Writable, "linked-"+filepath.Base(from))
		if os.Link(from, name) == nil {
			t.find("%s is linked into the writable tree", from)
			_ = os.Remove(name)
		}
	}
	for _, dir := range []string{facts.Work, facts.Writable} {
		name := filepath.Join(dir, "link-to-secret")
		_ = os.Symlink(t.SecretFile, name)
		if digest(name) == t.SecretSHA256 {
			t.find("a link in %s leads to the host's secret", dir)
		}
		up := filepath.Join(dir, "../../../../../../../../..", t.SecretFile)
		if digest(up) == t.SecretSHA256 {
			t.find("%s is the host's secret", up)
		}
		_ = os.Remove(name)
	}
	t.note("no link leads out")
}

// leases asks for what a program of the host's would wait for, and gives it back.
func leases(t *trial) {
	for name, want := range map[string][]int{
		facts.ReadOnly + "/file":     {unix.F_RDLCK},
		facts.Writable + "/file":     {unix.F_RDLCK, unix.F_WRLCK},
		facts.Writable + "/sub/file": {unix.F_RDLCK, unix.F_WRLCK},
	} {
		for _, kind := range want {
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.note("%s: %v", name, err)
				continue
			}
			if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, kind); err == nil {
				t.find("a lease on %s (%d)", name, kind)
			}
			t.note("%s: %v", name, err)
			unix.Close(fd) // with it goes the lease
		}
	}
	const created = 4 // DN_CREATE
	for _, dir := range []string{facts.ReadOnly, facts.Writable} {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.note("%s: %v", dir, err)
			continue
		}
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, created); err == nil {
			t.find("a watch on %s that nobody counts", dir)
		}
		t.note("%s: %v", dir, err)
		unix.Close(fd)
	}
}

// leave makes in the workspace what might hurt a host that looks at it, and
// says what could not be made: not all can everywhere.
func leave(file string, out io.Writer) error {
	f, err := load(file)
	if err != nil {
		return err
	}
	w := func(name string) string { return filepath.Join(facts.Work, name) }
	escape := "\x1b]0;owned\x07\x1b[2J"
	steps := []struct {
		what string
		do   func() error
	}{
		{"a file changed", func() error { return os.WriteFile(w("file"), []byte("changed\n"), 0o644) }},
		{"a file removed", func() error { return os.Remove(w("gone")) }},
		{"a name that speaks to terminals", func() error { return os.WriteFile(w("name"+escape), []byte(escape), 0o644) }},
		{"a name that reorders text", func() error { return os.WriteFile(w("txt.\u202egpj"), []byte("x"), 0o644) }},
		{"content that speaks to terminals", func() error { return os.WriteFile(w("content"), bytes.Repeat([]byte(escape+"\n"), 4), 0o644) }},
		{"a hook", func() error { return write(w(".git/hooks/pre-commit"), "#!/bin/sh\n") }},
		{"a repository", func() error { return write(w("deep/.git/config"), "[core]\n\tfsmonitor = x\n") }},
		{"an editor's task", func() error { return write(w(".vscode/tasks.json"), "{}") }},
		{"an environment", func() error { return write(w(".envrc"), "x\n") }},
		{"a link out", func() error { return os.Symlink("../out", w("link-out")) }},
		{"an absolute link", func() error { return os.Symlink("/etc", w("link-etc")) }},
		{"a directory through a link", func() error { return write(w("swap/inner"), "through\n") }},
		{"a socket", func() error { return unix.Mknod(w("socket"), unix.S_IFSOCK|0o777, 0) }},
		{"a fifo", func() error { return unix.Mkfifo(w("fifo"), 0o666) }},
		{"a device", func() error { return unix.Mknod(w("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) }},
		{"a set-id file", func() error { return setID(w("set-id")) }},
		{"a set-id file in the host's tree", func() error { return setID(facts.Writable + "/set-id") }},
		{"a device in the host's tree", func() error {
			return unix.Mknod(facts.Writable+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		}},
		{"an attribute in the host's tree", func() error {
			f := facts.Writable + "/attribute"
			_ = touch(f)
			return unix.Setxattr(f, "security.capability", make([]byte, 20), 0)
		}},
		{"a change to a host's file that anybody may write", func() error {
			var errs []error
			for _, root := range []string{"", "/mnt", "/run/host", "/proc/1/root"} {
				errs = append(errs, appendTo(root+f.Home+"/outside/file"))
			}
			return errors.Join(errs...)
		}},
		{"a file in the host's read-only tree", func() error { return touch(facts.ReadOnly + "/written") }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			fmt.Fprintf(out, "not left: %s: %v\n", s.what, err)
		}
	}
	return nil
}

func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o755)
}

func setID(name string) error {
	if err := touch(name); err != nil {
		return err
	}
	return unix.Chmod(name, 0o4755)
}
