package gitgate

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Used is how many bytes the files of a directory have. One that is not there has none.
func Used(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var fi fs.FileInfo
			if fi, err = d.Info(); err == nil {
				n += fi.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // it went meanwhile
			return nil
		}
		return err
	})
	return n, err
}

// room is how many bytes more the gate's directory may take. It fails where there are none.
func (g *Gate) room() (int64, error) {
	if g.c.MaxDisk == 0 {
		return math.MaxInt64, nil
	}
	used, err := Used(g.c.Dir)
	if err != nil {
		return 0, err
	}
	if used >= g.c.MaxDisk {
		return 0, sandbox.Errorf(sandbox.Exhausted, "the mirrors of the sandbox's remotes take %s of disk, which is all that they may", term.FormatSize(used)).
			WithHint("a sandbox with a larger disk may have larger ones")
	}
	return g.c.MaxDisk - used, nil
}
