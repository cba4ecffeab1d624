package secret_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const value = "tok-4f1c0ffee-a-value-to-be-looked-for"

// me is the owner whom files and commands of these tests belong to.
var me = "uid:" + strconv.Itoa(os.Geteuid())

func options(t *testing.T) secret.Options {
	t.Helper()
	dir := t.TempDir()
	return secret.Options{Dir: filepath.Join(dir, "state", "secrets"), KeyFile: filepath.Join(dir, "config", "secrets.key")}
}

func mustOpen(t *testing.T, o secret.Options) *secret.Store {
	t.Helper()
	s, err := secret.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func text(v string) secret.Source { return secret.Source{Value: secret.NewValue([]byte(v))} }

func mustPut(t *testing.T, s *secret.Store, owner, name string, src secret.Source) secret.Info {
	t.Helper()
	info, err := s.Put(t.Context(), owner, name, src)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func wantValue(t *testing.T, s *secret.Store, owner, sandboxID, name, want string) {
	t.Helper()
	m, err := s.Value(t.Context(), owner, sandboxID, name)
	if err != nil {
		t.Fatalf("Value of %s: %v", name, err)
	}
	if m.Value.Reveal() != want {
		t.Errorf("Value of %s is another than was put", name)
	}
}

func wantKind(t *testing.T, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("error %v is of kind %q, want %q", err, got, want)
	}
}

// holding returns the files below dir that hold b.
func holding(t *testing.T, dir string, b []byte) (files []string) {
	t.Helper()
	count := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		count++
		text, err := os.ReadFile(path)
		if bytes.Contains(text, b) {
			files = append(files, path)
		}
		return err
	})
	if err != nil || count == 0 {
		t.Fatalf("looked at %d files of %s: %v", count, dir, err)
	}
	return files
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
