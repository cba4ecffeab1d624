package guest

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/sudo"
	"golang.org/x/sys/unix"
)

// spare is a directory of programs that images leave empty, in most of their
// PATHs.
const spare = "/usr/local/sbin"

// addPrograms gives the image below root what it lacks of programs. Where its
// directories are not the agent's to write to, as those of a machine's own that
// an ordinary user sees, they are put on a file system of their own over an
// empty one.
func (a *agent) addPrograms(root string) error {
	searched := cmp.Or(a.cfg.Env["PATH"], commandPath)
	err := errors.Join(namePython(root, searched, ""), a.installSudo(root, searched))
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return err
	}
	if merr := mountSpare(root, searched); merr != nil {
		return errors.Join(err, merr)
	}
	return errors.Join(namePython(root, searched, spare), a.installSudo(root, spare))
}

// mountSpare makes the spare directory one that the agent may write to.
func mountSpare(root, searched string) error {
	dir := filepath.Join(root, spare)
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(list) > 0 || !slices.Contains(filepath.SplitList(searched), spare) {
		return fmt.Errorf("%s has files, or is not searched", spare)
	}
	if err := unix.Mount("programs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=8m"); err != nil {
		return fmt.Errorf("mount %s: %w", spare, err)
	}
	return nil
}

// commandPath is where commands are looked for unless the environment says.
const commandPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// namePython has an image that knows Python as python3 alone know it as python
// too, which is what programs for sandboxes call it: by a link beside the
// first that searched, a PATH, finds, or in the directory into. What has that
// name already is kept.
func namePython(root, searched, into string) error {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer unix.Close(dir)
	home := ""
	for _, d := range filepath.SplitList(searched) {
		switch {
		case !path.IsAbs(d):
		case hasCommand(dir, path.Join(d, "python")):
			return nil
		case home == "" && hasCommand(dir, path.Join(d, "python3")):
			home = d
		}
	}
	if home == "" {
		return nil
	}
	to := "python3"
	if into != "" {
		home, to = into, path.Join(home, to)
	}
	at, err := beneath.OpenInRoot(dir, home, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open %s: %w", home, err)
	}
	defer unix.Close(at)
	if err := unix.Symlinkat(to, at, "python"); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("link %s/python: %w", home, err)
	}
	return nil
}

// hasCommand reports whether a program is there.
func hasCommand(root int, name string) bool {
	fd, err := beneath.OpenInRoot(root, name, unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0
}

// installSudo has commands that search a PATH find a program named sudo below
// root: one that works where the sandbox has it, else one that says what to do.
func (a *agent) installSudo(root, searched string) error {
	advice := "not in this sandbox: have the whole command run as root, as carboy exec --user root does"
	if !a.cfg.AllowRoot {
		advice = "no command of this sandbox can be root: that takes the wall gvisor, and no directory of another user or that is written to"
	}
	return sudo.Install(root, searched, advice, a.sudoAllowed())
}

// sudoAllowed reports whether commands become root by sudo.
func (a *agent) sudoAllowed() bool { return a.cfg.Sudo && a.cfg.AllowRoot }

// serveSudo answers the calls of sudo, where it is allowed, until stop.
func (a *agent) serveSudo(users *accounts) (stop func(), err error) {
	if !a.sudoAllowed() {
		return func() {}, nil
	}
	s, err := sudo.Listen(sudo.Options{
		Engine: a.engine, Lookup: a.allowed(users), Log: a.log,
		User: func() string { return a.settings.defaults().User },
	})
	if err != nil {
		return nil, err
	}
	return func() {
		if err := s.Close(); err != nil {
			a.log.Warn("stop answering sudo", "err", err)
		}
	}, nil
}
