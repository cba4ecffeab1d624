package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestPutAndValue(t *testing.T) {
	o := options(t)
	s := mustOpen(t, o)
	mustPut(t, s, "uid:1000", "TOKEN", text(value))
	mustPut(t, s, "uid:1001", "TOKEN", text(value+"-other"))
	mustPut(t, s, "key:ci", "TOKEN", text(value+"-key"))
	if _, err := s.PutFor(t.Context(), "uid:1000", "sb1", "TOKEN", text(value+"-sandbox")); err != nil {
		t.Fatal(err)
	}
	check := func(s *secret.Store) {
		t.Helper()
		wantValue(t, s, "uid:1000", "", "TOKEN", value)
		wantValue(t, s, "uid:1000", "sb2", "TOKEN", value)
		wantValue(t, s, "uid:1000", "sb1", "TOKEN", value+"-sandbox")
		wantValue(t, s, "uid:1001", "", "TOKEN", value+"-other")
		wantValue(t, s, "key:ci", "", "TOKEN", value+"-key")
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, o)
	check(s)
	// A sandbox's own secret is for its own owner.
	if _, err := s.Value(t.Context(), "uid:1001", "sb1", "TOKEN"); err == nil {
		t.Error("another owner has a sandbox's secret")
	}
	if got, err := s.Sandboxes(); err != nil || !slices.Equal(got, []string{"sb1"}) {
		t.Errorf("Sandboxes = %q, %v", got, err)
	}
	for range 2 {
		if err := s.RemoveFor(t.Context(), "sb1"); err != nil {
			t.Error(err)
		}
	}
	wantValue(t, s, "uid:1000", "sb1", "TOKEN", value)
}

func TestNothingIsKeptInClear(t *testing.T) {
	o := options(t)
	s := mustOpen(t, o)
	mustPut(t, s, me, "TOKEN", text(value))
	mustPut(t, s, me, "MINTED", secret.Source{Command: []string{"/bin/echo", "minted-" + value}, TTL: time.Hour})
	if _, err := s.Value(t.Context(), me, "", "MINTED"); err != nil {
		t.Fatal(err)
	}
	above := filepath.Dir(filepath.Dir(o.Dir))
	for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value)), value[:12]} {
		if files := holding(t, above, []byte(form)); len(files) > 0 {
			t.Errorf("%q hold the value", files)
		}
	}
	// The search finds what is there.
	write(t, filepath.Join(o.Dir, "control"), "x"+value, 0o600)
	if files := holding(t, above, []byte(value)); len(files) != 1 {
		t.Errorf("a value that was written in clear is found in %q", files)
	}
}

func TestValuesAreNotPrinted(t *testing.T) {
	v := secret.NewValue([]byte(value))
	src := secret.Source{Value: v}
	hidden := struct{ v secret.Value }{v}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "src", src, "minted", secret.Minted{Value: v})
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v, "src", src)
	j, err := json.Marshal(src)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{log.String(), string(j)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, v), fmt.Sprintf(verb, src), fmt.Sprintf(verb, &src), fmt.Sprintf(verb, hidden))
	}
	for _, text := range texts {
		bytes := fmt.Sprint([]byte(value[:8])) //nolint:staticcheck // the bytes as numbers
		for _, form := range []string{value, fmt.Sprintf("%x", value), strings.Trim(bytes, "[]"), base64.StdEncoding.EncodeToString([]byte(value))} {
			if strings.Contains(text, form) {
				t.Errorf("%q tells the value", text)
			}
		}
	}
	if v.Reveal() != value {
		t.Error("Reveal does not")
	}
	again := v
	v.Wipe()
	if again.Reveal() != "" || !again.Empty() {
		t.Error("a wiped value is still there")
	}
	if json.Unmarshal([]byte(`{"Value":"[secret]"}`), &src) == nil {
		t.Error("a hidden value was decoded")
	}
}

func TestPutRefuses(t *testing.T) {
	s := mustOpen(t, options(t))
	long := strings.Repeat("x", secret.MaxValue+1)
	tests := []struct {
		name        string
		owner, what string
		src         secret.Source
		want        sandbox.Kind
	}{
		{"empty-name", me, "", text(value), sandbox.Invalid},
		{"a-path", me, "../../etc/passwd", text(value), sandbox.Invalid},
		{"a-slash", me, "A/B", text(value), sandbox.Invalid},
		{"a-dot", me, "A.B", text(value), sandbox.Invalid},
		{"a-digit-first", me, "1A", text(value), sandbox.Invalid},
		{"the-check-record", me, "0-key", text(value), sandbox.Invalid},
		{"a-nul", me, "A\x00B", text(value), sandbox.Invalid},
		{"an-escape", me, "A\x1b[2J", text(value), sandbox.Invalid},
		{"no-ascii", me, "TÖKEN", text(value), sandbox.Invalid},
		{"long-name", me, strings.Repeat("A", 129), text(value), sandbox.Invalid},
		{"value-as-name", me, value, text(value), sandbox.Invalid},
		{"no-source", me, "A", secret.Source{}, sandbox.Invalid},
		{"two-sources", me, "A", secret.Source{File: "/x", Command: []string{"/x"}}, sandbox.Invalid},
		{"short", me, "A", text("1234567"), sandbox.Invalid},
		{"long", me, "A", text(long), sandbox.Invalid},
		{"newline", me, "A", text(value + "\n"), sandbox.Invalid},
		{"two-lines", me, "A", text(value + "\n" + value), sandbox.Invalid},
		{"carriage-return", me, "A", text(value + "\r" + value), sandbox.Invalid},
		{"nul", me, "A", text(value + "\x00"), sandbox.Invalid},
		{"blank", me, "A", text(" " + value), sandbox.Invalid},
		{"relative-file", me, "A", secret.Source{File: "token"}, sandbox.Invalid},
		{"relative-command", me, "A", secret.Source{Command: []string{"gh", "auth"}}, sandbox.Invalid},
		{"ttl-of-a-value", me, "A", secret.Source{Value: secret.NewValue([]byte(value)), TTL: 1}, sandbox.Invalid},
		{"ttl-below-zero", me, "A", secret.Source{Command: []string{"/bin/echo", value}, TTL: -1}, sandbox.Invalid},
		{"file-of-a-key", "key:ci", "A", secret.Source{File: "/etc/hostname"}, sandbox.Denied},
		{"command-of-a-key", "key:ci", "A", secret.Source{Command: []string{"/bin/echo", value}}, sandbox.Denied},
		{"no-owner", "", "A", text(value), sandbox.Internal},
		{"owner-outside", "key:../x", "A", text(value), sandbox.Internal},
		{"owner-below-zero", "uid:-1", "A", text(value), sandbox.Internal},
		{"owner-with-zeros", "uid:0000", "A", text(value), sandbox.Internal},
		{"owner-none", "uid:4294967295", "A", text(value), sandbox.Internal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.Put(t.Context(), tt.owner, tt.what, tt.src)
			wantKind(t, err, tt.want)
			if e := (*sandbox.Error)(nil); errors.As(err, &e) && (strings.Contains(e.Msg+e.Hint, value) || strings.Contains(e.Msg, "\x1b")) {
				t.Errorf("the error tells too much: %v", err)
			}
		})
	}
	if infos, err := s.List(t.Context(), me); err != nil || len(infos) > 0 {
		t.Errorf("List = %v, %v: a refused secret was kept", infos, err)
	}
}

// A use within the minute of the creation is not told as one before it.
func TestUsedNoEarlierThanMade(t *testing.T) {
	o := options(t)
	o.Now = func() time.Time { return time.Date(2030, 1, 2, 3, 4, 59, 0, time.UTC) }
	s := mustOpen(t, o)
	mustPut(t, s, me, "A", text(value))
	wantValue(t, s, me, "", "A", value)
	infos, err := s.List(t.Context(), me)
	if err != nil || len(infos) != 1 || !infos[0].LastUsed.Equal(infos[0].CreatedAt) {
		t.Errorf("List = %+v, %v, want a use at the moment of the creation", infos, err)
	}
}

func TestListRotateRemove(t *testing.T) {
	o := options(t)
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	o.Now = func() time.Time { return now }
	var changes []secret.Change
	o.Changed = func(c secret.Change) { changes = append(changes, c) }
	used := true
	o.InUse = func(owner, name string) []string {
		if used && owner == me && name == "B" {
			return []string{"web"}
		}
		return nil
	}
	s := mustOpen(t, o)
	mustPut(t, s, me, "B", text(value))
	mustPut(t, s, me, "A", secret.Source{Command: []string{"/bin/echo", "-n", value}, TTL: time.Minute})
	began := now
	now = now.Add(time.Hour)
	if _, err := s.Rotate(t.Context(), me, "B", nil); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("Rotate without a value = %v", err)
	}
	next := text(value + "2")
	if _, err := s.Rotate(t.Context(), me, "B", &next); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, me, "", "B", value+"2")
	_, err := s.Rotate(t.Context(), me, "C", &next)
	wantKind(t, err, sandbox.NotFound)

	infos, err := s.List(t.Context(), me)
	if err != nil || len(infos) != 2 {
		t.Fatalf("List = %v, %v", infos, err)
	}
	a, b := infos[0], infos[1]
	if a.Name != "A" || a.Kind != secret.KindCommand || a.TTL != time.Minute || len(a.Command) != 3 || !a.LastUsed.IsZero() {
		t.Errorf("List has %+v", a)
	}
	if b.Name != "B" || b.Kind != secret.KindValue || !b.CreatedAt.Equal(began) || !b.RotatedAt.Equal(now) || !b.LastUsed.Equal(now.Truncate(time.Minute)) {
		t.Errorf("List has %+v", b)
	}
	wantKind(t, s.Check(t.Context(), me, []string{"A", "B"}), "")
	err = s.Check(t.Context(), me, []string{"A", "X", "Y"})
	wantKind(t, err, sandbox.NotFound)
	if e := (*sandbox.Error)(nil); !errors.As(err, &e) || !strings.Contains(e.Msg, "X, Y") || e.Hint != "carboy secret add X" {
		t.Errorf("Check = %#v", e)
	}

	wantKind(t, s.Remove(t.Context(), me, "B", false), sandbox.Conflict)
	wantKind(t, s.Remove(t.Context(), me, "B", true), "")
	used = false
	wantKind(t, s.Remove(t.Context(), me, "A", false), "")
	err = s.Remove(t.Context(), me, "A", false)
	if e := (*sandbox.Error)(nil); !errors.As(err, &e) || e.Kind != sandbox.NotFound || e.Hint != "carboy secret ls" {
		t.Errorf("Remove of what is gone = %+v, want it not found, and where to look", err)
	}
	_, err = s.Value(t.Context(), me, "", "B")
	wantKind(t, err, sandbox.NotFound)
	want := []secret.Change{{Owner: me, Name: "B"}, {Owner: me, Name: "A"}, {Owner: me, Name: "B"}, {Owner: me, Name: "B", Removed: true}, {Owner: me, Name: "A", Removed: true}}
	if !slices.Equal(changes, want) {
		t.Errorf("changes = %v, want %v", changes, want)
	}
}

// An owner may have as many as the limit of their team says, and replace one all the same.
func TestLimitOfAnOwner(t *testing.T) {
	o := options(t)
	o.Most = func(owner string) int {
		if owner == me {
			return 2
		}
		return 0
	}
	s := mustOpen(t, o)
	mustPut(t, s, me, "A", text(value))
	mustPut(t, s, me, "B", text(value))
	_, err := s.Put(t.Context(), me, "C", text(value))
	wantKind(t, err, sandbox.Exhausted)
	if _, err := s.Rotate(t.Context(), me, "B", nil); sandbox.KindOf(err) == sandbox.Exhausted {
		t.Errorf("one that is there: %v", err)
	}
	if err := s.Remove(t.Context(), me, "A", false); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, me, "C", text(value))
	for _, name := range []string{"A", "B", "C"} { // the limit is one owner's
		mustPut(t, s, "uid:77", name, text(value))
	}
}

func TestBounds(t *testing.T) {
	s := mustOpen(t, options(t))
	for i := range secret.MaxSandboxSecrets {
		if _, err := s.PutFor(t.Context(), me, "sb", fmt.Sprintf("S%d", i), text(value)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.PutFor(t.Context(), me, "sb", "MORE", text(value))
	wantKind(t, err, sandbox.Exhausted)
	// One that is there may be replaced.
	_, err = s.PutFor(t.Context(), me, "sb", "S0", text(value))
	wantKind(t, err, "")
	big := strings.Repeat("x", secret.MaxValue)
	mustPut(t, s, me, "BIG", text(big))
	wantValue(t, s, me, "", "BIG", big)
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, o *secret.Options)
		want  sandbox.Kind
	}{
		{"nothing-spoilt", func(*testing.T, *secret.Options) {}, ""},
		{"key-missing", func(t *testing.T, o *secret.Options) { mustRemove(t, o.KeyFile) }, sandbox.Internal},
		{"key-open", func(t *testing.T, o *secret.Options) { mustChmod(t, o.KeyFile, 0o640) }, sandbox.Denied},
		{"key-damaged", func(t *testing.T, o *secret.Options) { write(t, o.KeyFile, "AGE-SECRET-KEY-1QQQ\n", 0o600) }, sandbox.Internal},
		{"key-empty", func(t *testing.T, o *secret.Options) { write(t, o.KeyFile, "", 0o600) }, sandbox.Internal},
		{"key-a-link", func(t *testing.T, o *secret.Options) {
			if err := errors.Join(os.Rename(o.KeyFile, o.KeyFile+"2"), os.Symlink(o.KeyFile+"2", o.KeyFile)); err != nil {
				t.Fatal(err)
			}
		}, sandbox.Internal},
		{"another-key", func(t *testing.T, o *secret.Options) {
			other := options(t)
			s := mustOpen(t, other)
			mustPut(t, s, me, "A", text(value))
			o.KeyFile = other.KeyFile
		}, sandbox.Internal},
		{"directory-open", func(t *testing.T, o *secret.Options) { mustChmod(t, o.Dir, 0o755) }, sandbox.Denied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			s := mustOpen(t, o)
			mustPut(t, s, me, "TOKEN", text(value))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, &o)
			s, err := secret.Open(o)
			wantKind(t, err, tt.want)
			if err == nil {
				s.Close()
			}
		})
	}
}

func mustRemove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func mustChmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	o := options(t)
	s := mustOpen(t, o)
	_, err := secret.Open(o)
	wantKind(t, err, sandbox.Conflict)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, o)
}

// TestFilesArePrivate also moves and damages records.
func TestFilesArePrivate(t *testing.T) {
	o := options(t)
	s := mustOpen(t, o)
	mustPut(t, s, "uid:1", "A", text(value))
	mustPut(t, s, "uid:2", "A", text(value+"-2"))
	mustPut(t, s, "uid:2", "B", text(value+"-B"))
	file := func(owner, name string) string { return filepath.Join(o.Dir, "owners", owner, name+".age") }
	for _, path := range []string{o.KeyFile, file("uid-1", "A")} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, fi.Mode(), err)
		}
	}
	move := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, string(b), 0o600)
	}
	move(file("uid-2", "A"), file("uid-1", "A"))
	_, err := s.Value(t.Context(), "uid:1", "", "A")
	wantKind(t, err, sandbox.Internal)
	move(file("uid-2", "B"), file("uid-2", "A"))
	_, err = s.Value(t.Context(), "uid:2", "", "A")
	wantKind(t, err, sandbox.Internal)
	write(t, file("uid-2", "B"), "damaged", 0o600)
	infos, err := s.List(t.Context(), "uid:2")
	if err != nil || len(infos) != 2 || !infos[0].Damaged || !infos[1].Damaged {
		t.Errorf("List = %+v, %v", infos, err)
	}
	// What is damaged can be put again.
	mustPut(t, s, "uid:2", "B", text(value))
	wantValue(t, s, "uid:2", "", "B", value)
}

func TestSeveralAtOnce(t *testing.T) {
	s := mustOpen(t, options(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("S%d", i%4)
			for range 5 {
				if _, err := s.Put(t.Context(), me, name, text(value+name)); err != nil {
					t.Error(err)
				}
				if m, err := s.Value(t.Context(), me, "", name); err != nil || m.Value.Reveal() != value+name {
					t.Errorf("Value of %s: %v", name, err)
				}
				if _, err := s.List(t.Context(), me); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"TOKEN", "_", "a/b", "..", "A\x00", "key:ci", "uid:1000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if secret.CheckName(name) == nil && (!filepath.IsLocal(name) || filepath.Base(name) != name || len(name) > 128 || strings.HasPrefix(name, ".")) {
			t.Errorf("%q is a name", name)
		}
	})
}
