package home

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestEnterable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give directories another group")
	}
	const uid, gid, other = 4242, 4243, 4244
	for name, tt := range map[string]struct {
		uid, gid int
		mode     os.FileMode
		refused  bool
	}{
		"own-group":          {uid, gid, 0o700, false},
		"other-group":        {uid, other, 0o700, true},
		"other-group-enters": {uid, other, 0o750, true},
		"others-enter":       {uid, other, 0o755, false},
		"not-its-owner":      {0, other, 0o700, false}, // who may enter it is not for its owner to say
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "above")
			below := filepath.Join(dir, "state")
			if err := errors.Join(os.MkdirAll(below, 0o755), os.Chown(dir, tt.uid, tt.gid), os.Chmod(dir, tt.mode)); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{dir, below} {
				err := enterable(path, uid, gid)
				e, _ := errors.AsType[*sandbox.Error](err)
				if (err != nil) != tt.refused || tt.refused && (e == nil || e.Kind != sandbox.Denied || e.Hint != "chgrp 4243 "+dir) {
					t.Errorf("enterable(%s) = %v, refused %v is wanted", path, err, tt.refused)
				}
			}
		})
	}
}
