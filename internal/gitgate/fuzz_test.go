package gitgate_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
)

// passable fails for a name of a ref that none may have.
func passable(t *testing.T, name string) {
	t.Helper()
	deceives := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '\ufffd' }
	if !strings.HasPrefix(name, "refs/") || strings.Contains(name, "..") || strings.ContainsFunc(name, deceives) && strings.ToValidUTF8(name, "") != name {
		t.Errorf("the ref %q passes", name)
	}
}

// FuzzOrder: whatever a client says, the refs that it may change have names that refs may have.
func FuzzOrder(f *testing.F) {
	zero, one := strings.Repeat("0", 40), strings.Repeat("1", 40)
	f.Add([]byte(adverts(zero + " " + one + " refs/heads/x\x00report-status")))
	f.Add([]byte(adverts("shallow "+one, zero+" "+one+" refs/heads/x\x00report-status atomic", one+" "+zero+" refs/tags/y")))
	f.Fuzz(func(t *testing.T, in []byte) {
		updates, err := gitgate.OrderForTest(bytes.NewReader(in))
		if err != nil {
			return
		}
		for _, u := range updates {
			if passable(t, u.Ref); u.Old == u.New {
				t.Errorf("%+v", u)
			}
		}
	})
}

// FuzzAdvert: whatever an upstream says, its refs have names that refs may have.
func FuzzAdvert(f *testing.F) {
	one := strings.Repeat("1", 40)
	f.Add([]byte(adverts(one+" HEAD\x00symref=HEAD:refs/heads/x object-format=sha1", one+" refs/heads/x", one+" refs/tags/v^{}")))
	f.Add([]byte(adverts("version 1", one+" refs/heads/x\x00")))
	f.Add([]byte("0008ERR x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		refs, err := gitgate.AdvertForTest(bytes.NewReader(in))
		if err != nil {
			return
		}
		for name, id := range refs {
			if passable(t, name); strings.Trim(id, "0123456789abcdef") != "" {
				t.Errorf("%q is %q", name, id)
			}
		}
	})
}

// FuzzChanges: what git says of commits, whose names of files are hostile, is read to its
// end or not at all.
func FuzzChanges(f *testing.F) {
	id := strings.Repeat("1", 40)
	f.Add(id + "\x00:100644 100644 " + id + " " + id + " M\x00a\nb\x00::100644 100644 100644 " + id + " " + id + " " + id + " MM\x00c\x00")
	f.Fuzz(func(t *testing.T, in string) {
		paths, err := gitgate.ChangesForTest(in)
		if err != nil {
			return
		}
		for _, p := range paths {
			if p == "" || !strings.Contains(in, p+"\x00") && !strings.HasSuffix(in, p) {
				t.Errorf("%q has %q", in, p)
			}
		}
	})
}
