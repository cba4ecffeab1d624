package ext4_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/test/long"
)

// mutants each lack one bound. The fuzz target named must fail over it by the seeds that it has.
var mutants = []struct{ name, target, file, bound, without string }{
	{"blocks-of-a-group", "FuzzOpen", "super.go", "s.GroupBlocks == 0 || ", ""},
	{"end-of-the-image", "FuzzExtents", "mapping.go", "|| blocks > s.Blocks-physical", ""},
	{"depth-of-extents", "FuzzExtents", "extents.go", "want >= 0 && depth != want", "false"},
	{"length-of-entries", "FuzzDirectory", "dir.go", " || entryHead+name > length", ""},
	{"place-of-attributes", "FuzzInode", "xattr.go", "size > maxXattr || off > len(values) || int(size) > len(values)-off", "size > maxXattr"},
	{"end-of-tags", "FuzzJournal", "replay.go", "len(b) < 16", "false"},
}

// TestMutants: each target notices that a bound is missing, and is content where none is.
func TestMutants(t *testing.T) {
	dir := t.TempDir()
	test := func(binary, target, timeout string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^"+target+"$", "-test.timeout", timeout)
		return cmd.CombinedOutput()
	}
	sound := build(t, filepath.Join(dir, "sound"), "{}")
	for _, m := range mutants[:long.Rounds(2, len(mutants))] {
		t.Run(m.name, func(t *testing.T) {
			if out, err := test(sound, m.target, "5m"); err != nil {
				t.Fatalf("without a mutation: %v: %s", err, out)
			}
			if out, err := test(build(t, filepath.Join(dir, m.name), overlay(t, dir, m.file, m.bound, m.without)), m.target, "3s"); err == nil {
				t.Errorf("%s does not notice: %s", m.target, out)
			}
		})
	}
}

// overlay is a file of the package with a part replaced, in the form of go build's.
func overlay(t *testing.T, dir, file, old, replacement string) string {
	t.Helper()
	here, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte(old)); n != 1 {
		t.Fatalf("%s has %q %d times", file, old, n)
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(old), []byte(replacement), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]map[string]string{"Replace": {here: changed}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// build compiles the package's tests.
func build(t *testing.T, binary, overlay string) string {
	t.Helper()
	file := binary + ".json"
	if err := os.WriteFile(file, []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v: %s", err, out)
	}
	return binary
}
