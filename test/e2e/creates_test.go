package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestCreateAmidOthers: an open that makes a file where there is none finds one or makes it,
// whatever the host's programs do with its name meanwhile.
func TestCreateAmidOthers(t *testing.T) {
	behindEach(t, func(t *testing.T, wall string) {
		s := newShares(t, newHome(t))
		s.box("one", wall)
		const name = "comes-and-goes"
		l := s.start("one", "creates.py", name, "20000")
		over, gone := make(chan struct{}), make(chan error, 1)
		go func() { gone <- comeAndGo(filepath.Join(s.dir, name), over) }()
		l.tell("go")
		if got := l.told(); got != "done" {
			t.Error(got)
		}
		close(over)
		if err := <-gone; err != nil {
			t.Error(err)
		}
	})
}

// comeAndGo makes and removes a file until it is over.
func comeAndGo(path string, over <-chan struct{}) error {
	for {
		select {
		case <-over:
			return nil
		default:
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err == nil {
			err = errors.Join(f.Chmod(0o666), f.Close())
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}
