package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return new(storetest.Memory) })
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return mustOpen(t, dbPath(t)) })
}

func dbPath(t *testing.T) string { return filepath.Join(t.TempDir(), "state.db") }

func mustOpen(t *testing.T, path string) *store.SQLite {
	t.Helper()
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// mustFill makes a store with one record at path and closes it.
func mustFill(t *testing.T, path string) {
	t.Helper()
	s := mustOpen(t, path)
	if err := s.Put(t.Context(), storetest.Record(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sp ace?#%41&.db")
	mustFill(t, path)
	got, err := mustOpen(t, path).Get(t.Context(), storetest.Record(1).ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(storetest.Record(1), got); d != "" {
		t.Errorf("record after reopening (-want +got):\n%s", d)
	}
}

func TestFilesArePrivateAndHoldNoToken(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := dbPath(t)
	s := mustOpen(t, path)
	if err := s.Put(t.Context(), storetest.Record(1)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) != 5 {
		t.Fatalf("files = %v, %v; want database, key, spare, log and its index", files, err)
	}
	seen := false
	for _, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %o, want 600", f, got)
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{storetest.Record(1).Token, storetest.Record(1).TrafficToken} {
			if bytes.Contains(b, []byte(token)) {
				t.Errorf("%s holds a token in clear", f)
			}
		}
		seen = seen || bytes.Contains(b, []byte(storetest.Record(1).Spec.Name))
	}
	if !seen {
		t.Error("the name is in no file: the search for the token proves nothing")
	}
}

// rawDB opens the database behind the store's back.
func rawDB(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, path string)
		want  sandbox.Kind
		says  []string // in message and hint
	}{
		{
			name: "garbage", want: sandbox.Internal, says: []string{"damaged", "backup"},
			spoil: func(t *testing.T, path string) { write(t, path, bytes.Repeat([]byte("garbage "), 2000)) },
		},
		{
			name: "short-garbage", want: sandbox.Internal, says: []string{"damaged"},
			spoil: func(t *testing.T, path string) { write(t, path, []byte("x")) },
		},
		{
			name: "damaged-pages", want: sandbox.Internal, says: []string{"damaged", "backup"},
			spoil: func(t *testing.T, path string) { scribble(t, path) },
		},
		{
			name: "newer", want: sandbox.Unsupported, says: []string{"newer", "99"},
			spoil: func(t *testing.T, path string) { rawDB(t, path, "PRAGMA user_version = 99") },
		},
		{
			name: "foreign", want: sandbox.Conflict, says: []string{"another program"},
			spoil: func(t *testing.T, path string) { rawDB(t, path, "PRAGMA application_id = 7") },
		},
		{
			name: "foreign-without-id-or-key", want: sandbox.Conflict, says: []string{"another program"},
			spoil: func(t *testing.T, path string) {
				for _, f := range []string{path, path + store.KeySuffix} {
					os.Remove(f)
				}
				rawDB(t, path, "CREATE TABLE theirs (x)")
				os.Chmod(path, 0o600)
			},
		},
		{
			name: "foreign-without-id", want: sandbox.Conflict, says: []string{"another program"},
			spoil: func(t *testing.T, path string) {
				os.Remove(path)
				rawDB(t, path, "CREATE TABLE theirs (x)")
				os.Chmod(path, 0o600)
			},
		},
		{
			name: "key-missing", want: sandbox.Internal, says: []string{".key", "missing"},
			spoil: func(t *testing.T, path string) { os.Remove(path + store.KeySuffix) },
		},
		{
			name: "key-of-another", want: sandbox.Internal, says: []string{"is not the key"},
			spoil: func(t *testing.T, path string) { write(t, path+store.KeySuffix, make([]byte, 32)) },
		},
		{
			name: "key-short", want: sandbox.Internal, says: []string{"key file", "damaged"},
			spoil: func(t *testing.T, path string) { write(t, path+store.KeySuffix, make([]byte, 31)) },
		},
		{
			name: "key-long", want: sandbox.Internal, says: []string{"key file", "damaged"},
			spoil: func(t *testing.T, path string) { write(t, path+store.KeySuffix, make([]byte, 33)) },
		},
		{
			name: "key-readable", want: sandbox.Denied, says: []string{"chmod 600"},
			spoil: func(t *testing.T, path string) { os.Chmod(path+store.KeySuffix, 0o640) },
		},
		{
			name: "readable", want: sandbox.Denied, says: []string{"chmod 600"},
			spoil: func(t *testing.T, path string) { os.Chmod(path, 0o604) },
		},
		{
			name: "directory", want: sandbox.Internal,
			spoil: func(t *testing.T, path string) { os.Remove(path); os.Mkdir(path, 0o700) },
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := dbPath(t)
			mustFill(t, path)
			tc.spoil(t, path)
			before := content(t, path)
			s, err := store.Open(t.Context(), path)
			if err == nil {
				s.Close()
			}
			if got := sandbox.KindOf(err); got != tc.want {
				t.Fatalf("Open = %v (kind %q), want kind %q", err, got, tc.want)
			}
			text := err.Error()
			if e, ok := errors.AsType[*sandbox.Error](err); ok {
				text += "\n" + e.Hint
			}
			for _, s := range append(tc.says, path) {
				if !strings.Contains(text, s) {
					t.Errorf("error %q does not say %q", text, s)
				}
			}
			if !bytes.Equal(before, content(t, path)) {
				t.Error("the refused file was changed")
			}
		})
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// scribble overwrites all but the first page.
func scribble(t *testing.T, path string) {
	b := content(t, path)
	for i := 4096; i < len(b); i++ {
		b[i] = 0xff
	}
	write(t, path, b)
}

func content(t *testing.T, path string) []byte {
	b, _ := os.ReadFile(path)
	return b
}

func TestOpenAfterCutShort(t *testing.T) {
	t.Run("key-without-database", func(t *testing.T) {
		path := dbPath(t)
		write(t, path+store.KeySuffix, make([]byte, 32))
		mustFill(t, path)
	})
	t.Run("half-a-key", func(t *testing.T) {
		path := dbPath(t)
		write(t, path, nil)
		write(t, path+store.KeySuffix, make([]byte, 5))
		mustFill(t, path)
		mustOpen(t, path)
	})
}

func TestOnlyOneOpens(t *testing.T) {
	path := dbPath(t)
	s := mustOpen(t, path)
	_, err := store.Open(t.Context(), path)
	if got := sandbox.KindOf(err); got != sandbox.Conflict {
		t.Fatalf("second Open = %v, want a Conflict", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, path)
}

func TestTokenIsBoundToItsRecord(t *testing.T) {
	for _, tc := range []struct{ name, column, from string }{
		{"token", "token", "token"},
		{"traffic-token", "traffic", "traffic"},
		{"traffic-as-token", "token", "traffic"},
		{"token-as-traffic", "traffic", "token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := dbPath(t)
			s := mustOpen(t, path)
			for n := range 2 {
				if err := s.Put(t.Context(), storetest.Record(n)); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
			from := 0
			if tc.column != tc.from {
				from = 1 // the record's own
			}
			rawDB(t, path, fmt.Sprintf(
				`UPDATE sandboxes SET %s = (SELECT %s FROM sandboxes WHERE id = '%s') WHERE id = '%s'`,
				tc.column, tc.from, storetest.Record(from).ID, storetest.Record(1).ID))
			s = mustOpen(t, path)
			if _, err := s.Get(t.Context(), storetest.Record(0).ID); err != nil {
				t.Errorf("untouched record: %v", err)
			}
			if _, err := s.Get(t.Context(), storetest.Record(1).ID); err == nil {
				t.Error("a token of another place was accepted")
			}
		})
	}
}

// TestFirstVersionIsBroughtUp: what the first carboy wrote is read.
func TestFirstVersionIsBroughtUp(t *testing.T) {
	path := dbPath(t)
	s := mustOpen(t, path)
	want := storetest.Record(1)
	want.TrafficToken, want.Spec.Traffic = "", sandbox.Traffic{}
	if err := s.Put(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	s.Close()
	rawDB(t, path, append(dropsOf(t, path), `ALTER TABLE sandboxes DROP COLUMN traffic`, `PRAGMA user_version = 1`)...)
	got, err := mustOpen(t, path).Get(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
}

func TestRecordWithUnknownFieldIsRefused(t *testing.T) {
	path := dbPath(t)
	mustFill(t, path)
	rawDB(t, path, `UPDATE sandboxes SET record = json_set(record, '$.spec.seccomp', 'strict')`)
	_, err := mustOpen(t, path).List(t.Context())
	if err == nil || !strings.Contains(err.Error(), storetest.Record(1).ID) {
		t.Errorf("List = %v, want an error that names the record", err)
	}
}

// TestFullDisk fills a small file system under an open store: writes fail with
// Exhausted and leave nothing, deletions still work, and then there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := mustOpen(t, filepath.Join(dir, "state.db"))
	last, err := 0, error(nil)
	for n := 1; n < 10_000; n++ {
		sb := storetest.Record(n)
		sb.State = sandbox.StateRunning
		if err = s.Put(t.Context(), sb); err != nil {
			break
		}
		last = n
	}
	if got := sandbox.KindOf(err); got != sandbox.Exhausted {
		t.Fatalf("Put on a full disk = %v, want Exhausted", err)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != last {
		t.Fatalf("List = %d records, %v; want %d", len(all), err, last)
	}
	// Not even what is left of the last block.
	if err := fill(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	sb := storetest.Record(20_000)
	sb.State = sandbox.StateCreated
	if err := s.Put(t.Context(), sb); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("Put on a full disk = %v, want Exhausted", err)
	}
	sb = storetest.Record(1)
	sb.State = sandbox.StateRemoving
	if err := s.Put(t.Context(), sb); err != nil {
		t.Errorf("Put of a removal on a full disk: %v", err)
	}
	for n := 1; n <= last; n++ {
		if err := s.Delete(t.Context(), storetest.Record(n).ID); err != nil {
			t.Fatalf("Delete %d on a full disk: %v", n, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), storetest.Record(20_000)); err != nil {
		t.Errorf("Put after deletions: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := mustOpen(t, filepath.Join(dir, "state.db")).List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List after reopening = %d records, %v; want 1", len(all), err)
	}
}

func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 16; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	return nil
}

// TestKill puts records from a process that is killed without notice, and
// wants every one that it reported.
func TestKill(t *testing.T) {
	if path := os.Getenv("STORE_TEST_PATH"); path != "" {
		s, err := store.Open(context.Background(), path)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			if err := s.Put(context.Background(), storetest.Record(n)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(os.Stdout, "%d\n", n)
		}
	}
	path := dbPath(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$", "-test.v=false")
	cmd.Env = append(os.Environ(), "STORE_TEST_PATH="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := -1
	for n := 0; n < 50; n++ {
		if _, err := fmt.Fscan(out, &last); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Kill()
	var n int
	for _, err = fmt.Fscan(out, &n); err == nil; _, err = fmt.Fscan(out, &n) {
		last = n
	}
	cmd.Wait()
	all, err := mustOpen(t, path).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) <= last {
		t.Errorf("%d records after a kill, want at least %d", len(all), last+1)
	}
}

func BenchmarkPut(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sb := storetest.Record(1)
	for b.Loop() {
		if err := s.Put(b.Context(), sb); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		if err := s.Append(b.Context(), "sb_a", sandbox.Event{Type: "test", Message: "message"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state.db")
	for b.Loop() {
		s, err := store.Open(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
