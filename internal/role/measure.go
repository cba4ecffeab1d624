package role

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// roleMeasure is root of a user namespace over what instances made.
const roleMeasure = "carboy-box-measure"

// measured is what a role counted.
type measured struct {
	Bytes int64 `json:"bytes"`
	Whole bool  `json:"whole"`
}

// errUnseen says that something could not be counted.
var errUnseen = errors.New("not all of it can be seen")

// Measure counts what a file or directory takes on the disk, in bytes, and follows
// no link. Where not all of it can be seen, there is an error beside what could.
// Without root, what instances made belongs to subordinate ids: a role that is root
// over them counts it.
func (r *Runner) Measure(ctx context.Context, path string) (int64, error) {
	fi, err := os.Lstat(path)
	if err != nil || !fi.IsDir() || !r.Rootless() {
		return MeasureOwn(path)
	}
	var m measured
	if err := r.Ask(ctx, roleMeasure, path, &m, nil); err != nil {
		return 0, err
	}
	if !m.Whole {
		return m.Bytes, errUnseen
	}
	return m.Bytes, nil
}

// MeasureOwn is Measure with the caller's own rights.
func MeasureOwn(path string) (n int64, err error) {
	walk := filepath.WalkDir(path, func(at string, d fs.DirEntry, failed error) error {
		var fi fs.FileInfo
		if failed == nil {
			fi, failed = d.Info()
		}
		switch {
		case errors.Is(failed, fs.ErrNotExist) && at != path: // it went meanwhile
		case failed != nil:
			err = errUnseen
		default:
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
			}
		}
		return nil
	})
	return n, errors.Join(err, walk)
}

// measureMain counts what is at the path that it reads.
func measureMain(in io.Reader, out io.Writer) error {
	var path string
	if err := json.NewDecoder(in).Decode(&path); err != nil { // its ids are mapped by then
		return err
	}
	if err := BecomeRoot(); err != nil {
		return err
	}
	n, err := MeasureOwn(path)
	return json.NewEncoder(out).Encode(measured{Bytes: n, Whole: err == nil})
}
