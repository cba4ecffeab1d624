package subid_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/subid"
)

func TestParse(t *testing.T) {
	const file = "other:100000:65536\nann:165536:1000\n\nnonsense\nann:0:65536\nann:231072:65536\n1001:300000:65536\n:5:65536\n"
	tests := []struct {
		name string
		uid  int
		want subid.Range
	}{
		{"ann", 7, subid.Range{First: 231072, Count: 65536}},
		{"", 1001, subid.Range{First: 300000, Count: 65536}},
		{"bob", 7, subid.Range{}},
	}
	for _, tt := range tests {
		got, err := subid.Parse(strings.NewReader(file), tt.name, tt.uid, 65536)
		if got != tt.want || (err == nil) != (tt.want != subid.Range{}) {
			t.Errorf("Parse for %q, %d = %v, %v; want %v", tt.name, tt.uid, got, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ann:1:65536\n")
	f.Fuzz(func(t *testing.T, file string) {
		r, err := subid.Parse(strings.NewReader(file), "ann", 5, 10)
		if err == nil && (r.First <= 0 || r.Count < 10) {
			t.Errorf("accepted %v", r)
		}
	})
}
