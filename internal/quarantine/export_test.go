package quarantine

import (
	"context"
	"os"
	"path/filepath"
)

// ParseRefsForTest is parseRefs, for names of objects of 40 digits.
func ParseRefsForTest(b []byte) (here []string, err error) {
	r := &Repository{Format: "sha1"}
	refs, err := parseRefs(b, r.isID)
	for _, i := range refs {
		if name, err := i.here("refs/carboy/otter/"); err == nil {
			here = append(here, name)
		}
	}
	return here, err
}

// OpenWardForTest makes a quarantine, and leaves it as a fetch does that is killed.
func OpenWardForTest(state, id string) error {
	w, err := openWard(state, id)
	if err != nil {
		return err
	}
	return w.lock.Close()
}

// HoldWardForTest makes a quarantine, and holds it until end is called.
func HoldWardForTest(state, id string) (end func() error, err error) {
	w, err := openWard(state, id)
	if err != nil {
		return nil, err
	}
	return w.close, nil
}

// StaleLockForTest opens the lock of a quarantine, has meanwhile run, and reports whether
// what was opened is taken for the lock then.
func StaleLockForTest(state, id string, meanwhile func()) (bool, error) {
	root, err := os.OpenRoot(filepath.Join(state, stateDir))
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(id+".lock", os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	meanwhile()
	return (&ward{root: root}).lockNamed(f, id)
}

// OwnForTest runs git on the user's repository as a fetch does.
func (r *Repository) OwnForTest(ctx context.Context, args ...string) (string, error) {
	out, err := r.own(ctx, nil, args...)
	return string(out), err
}

// UnopenedForTest runs git as a fetch does on a repository that it would not open.
func UnopenedForTest(ctx context.Context, git, dir string, args ...string) (string, error) {
	return (&Repository{Dir: dir, git: git, gitDir: filepath.Join(dir, ".git")}).OwnForTest(ctx, args...)
}
