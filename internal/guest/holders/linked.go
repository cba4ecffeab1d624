package holders

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	api "github.com/carboy-sandbox/carboy/api/guest"
)

// Linked finds files in directories that have another name outside of the one that they are in: by that they can be
// written to. No process has to be there.
func Linked(dirs []string) ([]Holder, error) {
	var list []Holder
	for _, dir := range dirs {
		found, err := linkedIn(dir)
		if err != nil {
			return nil, fmt.Errorf("look for links: %w", err)
		}
		list = append(list, found...)
	}
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Compare(a.Path, b.Path) })
	return list, nil
}

func linkedIn(dir string) (list []Holder, err error) {
	type inode struct{ dev, ino uint64 }
	left := map[inode]uint64{} // names that were not found
	first := map[inode]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // who shares the directory has removed it
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		if st.Nlink < 2 {
			return nil
		}
		id := inode{st.Dev, st.Ino}
		if _, ok := first[id]; !ok {
			first[id], left[id] = path, uint64(st.Nlink)
		}
		left[id]--
		return nil
	})
	for id, n := range left {
		if n > 0 {
			list = append(list, Holder{Path: first[id], How: api.HowLinked})
		}
	}
	return list, err
}
