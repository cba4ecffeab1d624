package account_test

import (
	"net/http"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

func FuzzLookup(f *testing.F) {
	f.Add("root:x:0:0::/root:/bin/sh\n", "a:x:1:user\n", "user")
	f.Add("a:x:4294967295:1::/:/\n", "a:x:4294967295:a\n", "a")
	f.Add("user:x:0:0::../x:y\n", "", "user")
	f.Fuzz(func(t *testing.T, passwd, group, name string) {
		a, err := account.Lookup(guest(t, passwd, group), name)
		if err != nil {
			return
		}
		switch {
		case a.Name != name:
			t.Errorf("Name = %q, want %q", a.Name, name)
		case a.UID == 1<<32-1 || a.GID == 1<<32-1:
			t.Errorf("ids %d and %d: one means no change", a.UID, a.GID)
		case name == account.User && (a.UID != 1000 || a.GID != 1000):
			t.Errorf("user has ids %d and %d", a.UID, a.GID)
		case a.Home == "" || a.Home[0] != '/' || a.Shell == "" || a.Shell[0] != '/':
			t.Errorf("home %q or shell %q is not absolute", a.Home, a.Shell)
		}
	})
}

func FuzzFromHeader(f *testing.F) {
	f.Add("Basic dXNlcjo=")
	f.Add("Bearer x")
	f.Fuzz(func(t *testing.T, value string) {
		name, ok, err := account.FromHeader(http.Header{"Authorization": {value}})
		if ok != (name != "") || (ok && err != nil) {
			t.Errorf("FromHeader(%q) = %q, %v, %v", value, name, ok, err)
		}
	})
}
