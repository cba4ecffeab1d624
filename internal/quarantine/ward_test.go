package quarantine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/quarantine"
)

// TestLeftQuarantines: what fetches left that were killed is removed by the next, of
// whatever sandbox; one that runs is left alone.
func TestLeftQuarantines(t *testing.T) {
	const other = "sb_bbbbbbbbbbbbbbbbbbbb"
	state := t.TempDir()
	if err := quarantine.OpenWardForTest(state, testID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "fetch", testID, "pack"), []byte("x"), 0o400); err != nil {
		t.Fatal(err)
	}
	end, err := quarantine.HoldWardForTest(state, other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := quarantine.HoldWardForTest(state, other); err == nil || !strings.Contains(err.Error(), "another carboy fetch") {
		t.Errorf("two at once: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(state, "fetch"))
	if err != nil || len(left) != 2 {
		t.Errorf("%v, %v, want what is held alone", left, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(state, "fetch")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v, want nothing", left, err)
	}
}

// TestStaleLock: the file of a lock that was removed meanwhile is none, whether there is
// another one or not: two fetches would have one quarantine. It is one while it is there.
func TestStaleLock(t *testing.T) {
	state := t.TempDir()
	end, err := quarantine.HoldWardForTest(state, testID)
	if err != nil {
		t.Fatal(err)
	}
	var second func() error
	locked, err := quarantine.StaleLockForTest(state, testID, func() {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if second, err = quarantine.HoldWardForTest(state, testID); err != nil {
			t.Fatal(err)
		}
	})
	if locked || err != nil {
		t.Errorf("while another is held: %v, %v", locked, err)
	}
	locked, err = quarantine.StaleLockForTest(state, testID, func() {
		if err := second(); err != nil {
			t.Fatal(err)
		}
	})
	if locked || err != nil {
		t.Errorf("after it was removed: %v, %v", locked, err)
	}
	if err := quarantine.OpenWardForTest(state, testID); err != nil {
		t.Fatal(err)
	}
	if locked, err := quarantine.StaleLockForTest(state, testID, func() {}); !locked {
		t.Errorf("while it has its name: %v, %v", locked, err)
	}
}
