package files_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/files"
)

func TestAccepted(t *testing.T) {
	tests := []struct {
		name, header string
		plain        bool
		gzip, fail   bool
	}{
		{name: "none"},
		{name: "gzip", header: "gzip", gzip: true},
		{name: "upper-case", header: "GZIP", gzip: true},
		{name: "what-libraries-say", header: "br, gzip;q=0.5, deflate"},
		{name: "others-refused", header: "gzip, br;q=0", gzip: true},
		{name: "nothing-else-will-do", header: "gzip, deflate, identity;q=0", gzip: true},
		{name: "others-alone", header: "br, deflate"},
		{name: "identity-first", header: "gzip;q=0.5, identity"},
		{name: "gzip-refused", header: "gzip;q=0"},
		{name: "gzip-alone", header: "gzip, identity;q=0", gzip: true},
		{name: "any", header: "*"},
		{name: "any-but-identity", header: "*, identity;q=0", gzip: true},
		{name: "gzip-and-nothing-else", header: "gzip, *;q=0", gzip: true},
		{name: "identity-and-nothing-else", header: "identity, *;q=0"},
		{name: "nothing", header: "*;q=0", fail: true},
		{name: "nothing-known", header: "br, identity;q=0", fail: true},
		{name: "bad-weight", header: "gzip;q=x", gzip: true},
		{name: "range", header: "gzip", plain: true},
		{name: "range-without-identity", header: "gzip, identity;q=0", plain: true, fail: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := files.Accepted(tt.header, tt.plain)
			if got != tt.gzip || (err != nil) != tt.fail {
				t.Errorf("accepted(%q, %v) = %v, %v, want %v, fail %v", tt.header, tt.plain, got, err, tt.gzip, tt.fail)
			}
		})
	}
}

func FuzzAccepted(f *testing.F) {
	f.Add("gzip;q=0.5, *;q=0", false)
	f.Fuzz(func(t *testing.T, header string, plain bool) {
		if got, err := files.Accepted(header, plain); got && (plain || err != nil) {
			t.Errorf("accepted(%q, %v) = %v, %v", header, plain, got, err)
		}
	})
}
