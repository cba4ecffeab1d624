package store

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

// FuzzParse: whatever a record's text is, what is read from it is written
// again as something that is read as the same.
func FuzzParse(f *testing.F) {
	sb := storetest.Record(1)
	text, err := encode(sb)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sb.ID, text)
	f.Add("", "{}")
	f.Add("", `{"id":""} {}`)
	f.Fuzz(func(t *testing.T, id, text string) {
		sb, err := parse(id, text)
		if err != nil {
			return
		}
		once, err := encode(sb)
		if err != nil {
			t.Skip("a time beyond what JSON holds")
		}
		again, err := parse(id, once)
		if err != nil {
			t.Fatalf("parse what was encoded: %v\n%s", err, once)
		}
		if twice, err := encode(again); err != nil || twice != once {
			t.Errorf("encoded again (%v):\n%s\nwant:\n%s", err, twice, once)
		}
	})
}
