// Package unpacked spares tests the unpacking of what carboy carries: each of their homes
// would do it anew, and write a hundred megabytes. A home gets links to what another has.
// Carboy checks them as ever, and unpacks what does not pass.
package unpacked

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// lock keeps the processes of one home from one another, and is no program.
const lock = "lock"

// Programs are those that a binary carries, for the homes of one user.
type Programs struct {
	binary string
	once   sync.Once
	dir    string
	err    error
}

// Of are the programs of a binary, which is executed when they are first asked for.
func Of(binary string) *Programs { return &Programs{binary: binary} }

// Into links the programs into a directory of state, such as XDG_STATE_HOME, of a home that
// has none, and is this user's. Where that can't be, nothing is done.
func (p *Programs) Into(state string) error {
	if _, err := os.Lstat(filepath.Join(state, "carboy")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.once.Do(func() { p.dir, p.err = unpack(p.binary) })
	if p.err != nil {
		return p.err
	}
	to := filepath.Join(state, "carboy", "programs")
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.programs())
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lock {
			continue
		}
		// Another file system has none, and carboy unpacks them.
		_ = os.Link(filepath.Join(p.programs(), e.Name()), filepath.Join(to, e.Name()))
	}
	return nil
}

func (p *Programs) programs() string { return filepath.Join(p.dir, "state", "carboy", "programs") }

// Remove removes what was unpacked.
func (p *Programs) Remove() error {
	p.once.Do(func() {})
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}

// unpack has a daemon of a home of its own begin, and leave.
func unpack(binary string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "carboy-unpacked-*"); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		return dir, err
	}
	for _, args := range [][]string{{"ls"}, {"daemon", "stop"}} {
		cmd := exec.Command(binary, args...)
		cmd.Dir = dir
		cmd.Env = []string{
			"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + dir + "/state", "XDG_RUNTIME_DIR=" + dir + "/run",
			"XDG_CACHE_HOME=" + dir + "/cache", "XDG_CONFIG_HOME=" + dir + "/config",
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, fmt.Errorf("%s %q: %w: %s", binary, args, err, out)
		}
	}
	return dir, nil
}
