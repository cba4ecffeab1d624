package named_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/test/named"
)

func TestExists(t *testing.T) {
	dir := t.TempDir()
	src := "package x\n\nfunc TestA(t *testing.T) {\n\tt.Run(\"one\", f)\n}\n\nfunc TestB(t *testing.T) {\n\tt.Run(\"two\", f)\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir, function, name string
		want                bool
	}{
		{dir, "TestA", "", true},
		{dir, "TestA", "one", true},
		{dir, "TestA", "two", false}, // another's
		{dir, "TestC", "", false},
		{dir + "/none", "TestA", "", false},
	} {
		if got := named.Exists(t, tt.dir, tt.function, tt.name); got != tt.want {
			t.Errorf("Exists(%s, %q) = %v", tt.function, tt.name, got)
		}
	}
}
