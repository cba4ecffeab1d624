package reach_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
)

// A daemon begins another log where the last one is long.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, size := range []int64{reach.MaxLog, reach.MaxLog + 1, 5} {
		l, err := reach.OpenLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Truncate(size), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[string]int64{path: 5, path + ".old": reach.MaxLog + 1} {
		fi, err := os.Stat(p)
		if err != nil || fi.Size() != want || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want %d bytes for its owner alone", p, fi, err, want)
		}
	}
}
