package quarantine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// stateDir is where quarantines are, below the caller's own directory of state.
const stateDir = "fetch"

// ward is a quarantine: a directory of the user's own, which one fetch has to itself.
type ward struct {
	root *os.Root // of all quarantines
	id   string
	dir  string // its path
	lock *os.File
}

// Names in a ward.
const (
	wardGit  = "git" // the repository that git is shown
	wardIn   = "in"  // the pack as it came
	wardOut  = "out" // where the reader writes
	packFile = "p.pack"
	idxFile  = "p.idx"
)

// openWard makes the quarantine of a sandbox. Those that fetches left that were killed
// are removed.
func openWard(state, id string) (*ward, error) {
	if state == "" || !sandbox.ValidID(id) {
		return nil, sandbox.Errorf(sandbox.Unsupported, "there is no directory of your own for what is not known to be good yet: set HOME")
	}
	dir := filepath.Join(state, stateDir)
	for _, d := range []string{state, dir} {
		if err := home.Make(d, 0o700); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	w := &ward{root: root, id: id, dir: filepath.Join(dir, id)}
	if w.lock, err = w.hold(id); err != nil {
		_ = root.Close() // a directory
		return nil, err
	}
	w.sweep()
	if err := errors.Join(root.RemoveAll(id), root.Mkdir(id, 0o700)); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// hold locks the quarantine of a sandbox. The kernel gives the lock back where the process
// ends. Whoever holds a lock may remove its file, so it is one only while the file that was
// locked has its name: else two would hold the same quarantine.
func (w *ward) hold(id string) (*os.File, error) {
	const tries = 100
	for range tries {
		f, err := w.root.OpenFile(id+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		locked, err := w.lockNamed(f, id)
		if locked {
			return f, nil
		}
		_ = f.Close() // it was not written to
		if err != nil {
			return nil, err
		}
	}
	return nil, held()
}

// held is the error of a quarantine that another fetch has.
func held() error {
	return sandbox.Errorf(sandbox.Conflict, "another carboy fetch of it is running")
}

// lockNamed locks f, and reports whether it is still the lock of id.
func (w *ward) lockNamed(f *os.File, id string) (bool, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, held()
	}
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := w.root.Lstat(id + ".lock")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, named), err
}

// sweep removes what fetches of other sandboxes left.
func (w *ward) sweep() {
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return // the next one may
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".lock"); ok && id != w.id {
			if f, err := w.hold(id); err == nil {
				_ = w.root.RemoveAll(id)        // or the next one does
				_ = w.root.Remove(id + ".lock") // as above
				_ = f.Close()                   // it was not written to
			}
		}
	}
}

// close removes the quarantine.
func (w *ward) close() error {
	err := w.root.RemoveAll(w.id)
	if rerr := w.root.Remove(w.id + ".lock"); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	_, _ = w.lock.Close(), w.root.Close() // it was not written to; a directory
	return err
}

func (w *ward) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// furnish makes the repository that git is shown: empty, with the objects of the user's
// to be seen, and nothing of its configuration.
func (w *ward) furnish(r *Repository) error {
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	if r.Format == pack.SHA256 {
		config = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
	}
	for _, d := range []string{wardGit, wardIn, wardOut, wardGit + "/refs", wardGit + "/objects", wardGit + "/objects/info", wardGit + "/objects/pack"} {
		if err := os.Mkdir(w.path(d), 0o700); err != nil {
			return err
		}
	}
	files := map[string]string{"HEAD": "ref: refs/heads/none\n", "config": config, "objects/info/alternates": strings.Join(r.objects, "\n") + "\n"}
	if r.shallow != "" {
		files["shallow"] = r.shallow
	}
	for name, text := range files {
		if err := os.WriteFile(w.path(wardGit, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// reader is git in this quarantine, over the user's objects.
func (w *ward) reader(r *Repository) *jail.Git {
	return &jail.Git{Path: r.git, Dir: w.path(wardGit), Read: append([]string{w.path(wardIn)}, r.objects...)}
}
