// Package named finds tests that a document names, for tests of documents. It reads sources and runs
// nothing.
package named

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Exists reports whether the package in a directory has a test function, and in it a case of that
// name, quoted; "": any.
func Exists(t *testing.T, dir, function, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, body, ok := strings.Cut(string(b), "\nfunc "+function+"(")
		if body, _, _ = strings.Cut(body, "\n}\n"); ok && (name == "" || strings.Contains(body, `"`+name+`"`)) {
			return true
		}
	}
	return false
}
