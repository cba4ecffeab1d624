package store_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestKeysAreKept(t *testing.T) {
	path := dbPath(t)
	s := mustOpen(t, path)
	k := team.Key{
		ID: "one", Owner: "key:a", Name: "first", Hash: key.Hash("x"), Scopes: []key.Scope{key.Read},
		Mask: team.Mask{Prefix: "e2b_", Length: 40, First: "ab", Last: "cdef"}, Paths: []string{"/srv"}, CreatedAt: noon,
	}
	if err := s.PutKey(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	k.Name = "renamed"
	if err := s.PutKey(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if err := s.UseKey(t.Context(), "one", noon.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	k.LastUsed = noon.Add(time.Hour)
	s.Close()
	s = mustOpen(t, path)
	got, err := s.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]team.Key{k}, got); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	twin := k
	twin.ID = "two"
	if err := s.PutKey(t.Context(), twin); err == nil {
		t.Error("two keys have one hash")
	}
	for range 2 {
		if err := s.DeleteKey(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err = s.Keys(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("keys after the deletion = %v %v", got, err)
	}
}

func TestNamedSecretsAreKept(t *testing.T) {
	s := mustOpen(t, dbPath(t))
	a := team.Secret{ID: "sec_a", Owner: "key:a", Name: "a", Kept: "K", Version: 1, CreatedAt: noon, UpdatedAt: noon}
	b := team.Secret{ID: "sec_b", Owner: "key:b", Name: "a", Kept: "L", Version: 1, CreatedAt: noon, UpdatedAt: noon}
	for _, sec := range []team.Secret{a, b} {
		if err := s.PutNamedSecret(t.Context(), sec); err != nil {
			t.Fatal(err)
		}
	}
	twin := b
	twin.ID, twin.Owner = "sec_c", "key:a"
	if err := s.PutNamedSecret(t.Context(), twin); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second secret of one name = %v, want conflict", err)
	}
	a.Version, a.Metadata = 2, map[string]string{"k": "v"}
	if err := s.PutNamedSecret(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	got, err := s.NamedSecrets(t.Context(), "key:a")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]team.Secret{a}, got); d != "" {
		t.Errorf("secrets (-want +got):\n%s", d)
	}
	if err := s.DeleteNamedSecret(t.Context(), "sec_a"); err != nil {
		t.Fatal(err)
	}
	if got, err = s.NamedSecrets(t.Context(), "key:a"); err != nil || len(got) != 0 {
		t.Errorf("secrets after the deletion = %v %v", got, err)
	}
}

func TestSettings(t *testing.T) {
	s := mustOpen(t, dbPath(t))
	for _, want := range []string{"", "one", "two"} {
		if want != "" {
			if err := s.SetSetting(t.Context(), "n", want); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.Setting(t.Context(), "n"); err != nil || got != want {
			t.Errorf("Setting = %q %v, want %q", got, err, want)
		}
	}
}

// dropsOf are the statements that drop what the first version had not.
func dropsOf(t *testing.T, path string) (drops []string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
		AND name NOT IN ('sandboxes', 'events', 'key_check')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		drops = append(drops, "DROP TABLE "+name)
	}
	return drops
}
