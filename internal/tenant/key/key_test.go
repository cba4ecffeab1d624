package key_test

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

func mustNew(t *testing.T) (secret, hash string) {
	t.Helper()
	secret, hash, err := key.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return secret, hash
}

func TestFind(t *testing.T) {
	secret, hash := mustNew(t)
	other, otherHash := mustNew(t)
	file := `# the first is restricted
{"id":"ci","hash":"` + hash + `","scopes":["read"],"paths":["/srv/repos"],"host_image":true}

{"id":"bot","hash":"` + otherHash + `","owner":"key:team"}
{"id":"weak","hash":"` + key.Hash("password") + `"}
`
	set, err := key.Parse(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, secret string
		want         *key.Key
	}{
		{"restricted", secret, &key.Key{ID: "ci", Hash: hash, Scopes: []key.Scope{key.Read}, Owner: "key:ci", Paths: []string{"/srv/repos"}, HostImage: true}},
		{"owner", other, &key.Key{ID: "bot", Hash: otherHash, Owner: "key:team"}},
		{"not-spelt-as-a-key", "password", nil},
		{"the-hash-itself", hash, nil},
		{"one-digit-off", flipLast(secret), nil},
		{"upper-case", strings.ToUpper(secret), nil},
		{"empty", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := set.Find(tt.secret)
			if ok != (tt.want != nil) {
				t.Fatalf("Find found: %v, want %v", ok, tt.want != nil)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(key.Key{})); diff != "" {
				t.Errorf("key (-want +got):\n%s", diff)
			}
		})
	}
}

func flipLast(s string) string {
	last := byte('0')
	if s[len(s)-1] == '0' {
		last = '1'
	}
	return s[:len(s)-1] + string(last)
}

func TestAllows(t *testing.T) {
	all, one := &key.Key{}, &key.Key{Scopes: []key.Scope{key.Exec}}
	for _, s := range []key.Scope{key.Read, key.Manage, key.Exec} {
		if !all.Allows(s) {
			t.Errorf("a key without scopes does not allow %s", s)
		}
		if got, want := one.Allows(s), s == key.Exec; got != want {
			t.Errorf("a key for exec allows %s: %v, want %v", s, got, want)
		}
	}
	// What came later is for keys that say so.
	for _, s := range []key.Scope{key.Keys, key.Admin} {
		if all.Allows(s) || one.Allows(s) {
			t.Errorf("a key that does not name it allows %s", s)
		}
		if !(&key.Key{Scopes: []key.Scope{s}}).Allows(s) {
			t.Errorf("a key that names it does not allow %s", s)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	_, hash := mustNew(t)
	ok := `{"id":"a","hash":"` + hash + `"}`
	tests := []struct{ name, file, want string }{
		{"nothing", "\n# only a comment\n", "no key"},
		{"not-json", "secret", "line 1"},
		{"unknown-field", `{"id":"a","hash":"` + hash + `","scope":["read"]}`, "scope"},
		{"unknown-scope", `{"id":"a","hash":"` + hash + `","scopes":["write"]}`, "scopes"},
		{"two-values", ok + ok, "more than one"},
		{"id-twice", `{"id":"a","id":"b","hash":"` + hash + `"}`, "twice"},
		{"case", `{"id":"a","hash":"` + hash + `","Scopes":["admin"]}`, "Scopes"},
		{"long-s", `{"id":"a","hash":"` + hash + `","scopes":["read"],"ſcopes":["admin"]}`, "ſcopes"},
		{"no-id", `{"hash":"` + hash + `"}`, "id"},
		{"odd-id", `{"id":"a b","hash":"` + hash + `"}`, "id"},
		{"short-hash", `{"id":"a","hash":"abcd"}`, "hash"},
		{"hash-not-hex", `{"id":"a","hash":"` + strings.Repeat("z", 64) + `"}`, "hash"},
		{"same-id", ok + "\n" + `{"id":"a","hash":"` + key.Hash("x") + `"}`, "line 2"},
		{"same-hash", ok + "\n" + `{"id":"b","hash":"` + hash + `"}`, "line 2"},
		{"relative-path", `{"id":"a","hash":"` + hash + `","paths":["srv"]}`, "paths"},
		{"unclean-path", `{"id":"a","hash":"` + hash + `","paths":["/srv/../etc"]}`, "paths"},
		{"root-path", `{"id":"a","hash":"` + hash + `","paths":["/"]}`, "paths"},
		{"owner-is-a-user", `{"id":"a","hash":"` + hash + `","owner":"uid:0"}`, "owner"},
		{"long-line", strings.Repeat("x", 100<<10), "read keys"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := key.Parse(strings.NewReader(tt.file))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v, want an error with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), hash) {
				t.Errorf("the error repeats a hash: %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	_, hash, err := key.New(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"id":"a","hash":"` + hash + `","scopes":["read"],"paths":["/srv"]}`))
	f.Add([]byte("# comment\n\n{}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		set, err := key.Parse(bytes.NewReader(file))
		if err != nil {
			return
		}
		if len(set.All()) == 0 || len(set.All()) > key.MaxKeys {
			t.Errorf("Parse accepted %d keys", len(set.All()))
		}
		if _, ok := set.Find(""); ok {
			t.Error("the empty secret is a key")
		}
	})
}
