package rights_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

func TestReaderMay(t *testing.T) {
	user := &rights.Reader{UID: 1000, GID: 1001}
	for _, c := range []struct {
		name     string
		r        *rights.Reader
		uid, gid uint32
		mode     uint32
		acl      bool
		want     bool
	}{
		{"its own", user, 1000, 0, 0o600, false, true},
		{"its own, of mode 0", user, 1000, 0, 0, false, true},
		{"its own, with a list", user, 1000, 0, 0o600, true, true},
		{"root's, secret", user, 0, 0, 0o600, false, false},
		{"root's, for all", user, 0, 0, 0o644, false, true},
		{"root's, for all, with a list that may exclude it", user, 0, 0, 0o644, true, false},
		{"root's, for its group", user, 0, 1001, 0o640, false, true},
		{"root's, for another group", user, 0, 1000, 0o640, false, false},
		{"root's, for all but its group", user, 0, 1001, 0o604, false, false},
		{"anything, by root", nil, 7, 7, 0, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.r.May(c.uid, c.gid, c.mode, func() bool { return c.acl }); got != c.want {
				t.Errorf("May(%d, %d, %o, %v) = %v, want %v", c.uid, c.gid, c.mode, c.acl, got, c.want)
			}
		})
	}
}

func TestReaderMayList(t *testing.T) {
	user := &rights.Reader{UID: 1000, GID: 1001}
	none := func() bool { return false }
	for mode, want := range map[uint32]bool{0o755: true, 0o705: true, 0o711: false, 0o744: false, 0o700: false} {
		if got := user.MayList(0, 0, mode, none); got != want {
			t.Errorf("MayList of others' directory of mode %o = %t, want %t", mode, got, want)
		}
	}
	if !user.MayList(0, 1001, 0o750, none) || user.MayList(0, 1001, 0o705, none) || !user.MayList(1000, 0, 0, none) {
		t.Error("MayList does not go by the group and the owner")
	}
}
