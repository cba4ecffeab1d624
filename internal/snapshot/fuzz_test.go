package snapshot

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func FuzzParse(f *testing.F) {
	const id = "sn_aaaaaaaaaaaaaaaaaaaa"
	f.Add([]byte(`{"id":"` + id + `","owner":"uid:1","image":"host","source":"sb_x","size":1,"created_at":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"id":"` + id + `","owner":"uid:1","image":"host","parent":"../x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		rec, err := parse(id, raw)
		if err == nil && (rec.ID != id || rec.Owner == "" || rec.Parent != "" && !sandbox.ValidSnapshotID(rec.Parent)) {
			t.Errorf("accepted %+v", rec)
		}
	})
}
