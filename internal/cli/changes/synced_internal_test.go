package changes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// A record keeps each name to the byte: of two that differ, neither is taken for the other.
func TestSyncedNames(t *testing.T) {
	const id = "sb_aaaaaaaaaaaaaaaaaaaa"
	names := []string{"d\xff", "d\xfe", "d\ufffd", "plain", "new\nline", "\xffdir/f"}
	var want synced
	for i, name := range names {
		mark := workspace.Mark{Path: name, Ino: uint64(i)}
		want.Seen = append(want.Seen, mark)
		want.Brought = append(want.Brought, workspace.Brought{Mark: mark, Kind: workspace.Symlink, Target: name})
	}
	r := &Reviewer{Console: &console.Console{Now: time.Now}, StateDir: t.TempDir()}
	if err := r.saveSynced(id, &want); err != nil {
		t.Fatal(err)
	}
	got, err := r.loadSynced(id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got, cmp.AllowUnexported(synced{}), cmpopts.IgnoreFields(synced{}, "noted")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
