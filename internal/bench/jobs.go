package bench

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// jobs are the kinds of real work. Quick ones are a tenth.
func (w *world) jobs() []job {
	scale := 10
	if w.quick {
		scale = 1
	}
	mib := 1024 * scale / 10
	return []job{
		{
			name: "git-status", title: fmt.Sprintf("git status of %d committed files in /workspace", 2000*scale),
			steps: []string{"status"}, script: timed("status", "git status --porcelain >/dev/null"),
			env:  gitEnv,
			fill: func(ctx context.Context, dir string) error { return w.fillGit(ctx, dir, 2000*scale) },
		},
		{
			name:  "small-files",
			title: fmt.Sprintf("an archive of %d small files unpacked into /workspace, and its %d directories renamed", 500*scale, 50*scale),
			steps: []string{"unpack", "rename"},
			script: "mkdir t t/stage t/all\ntrap 'rm -rf t' EXIT\n" +
				timed("unpack", "tar -xf files.tar -C t/stage") + timed("rename", "mv t/stage/* t/all/"),
			fill: func(_ context.Context, dir string) error { return fillArchive(dir, 50*scale) },
		},
		{
			name: "go-test", title: "go test of three small packages in /workspace, with what they import compiled already",
			steps: []string{"test"}, script: goDirs + "mkdir -p tmp\n" + timed("test", "go test -count=1 ./... >/dev/null"),
			env:  append(goEnv, "PATH="+goPath()),
			fill: w.fillGo,
		},
		{
			name: "sequential", title: fmt.Sprintf("%d MiB written to a file in /workspace and synced, and read again", mib),
			steps: []string{"write", "read"},
			script: "trap 'rm -f big' EXIT\n" +
				timed("write", fmt.Sprintf("dd if=/dev/zero of=big bs=1M count=%d conv=fsync 2>/dev/null", mib)) +
				timed("read", "dd if=big of=/dev/null bs=1M 2>/dev/null"),
			fill: func(_ context.Context, dir string) error { return os.Mkdir(dir, 0o755) },
		},
	}
}

// gitEnv keeps git from what this machine's users have configured, and lets
// it into a tree that seems to be another user's.
var gitEnv = []string{
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1",
	"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	"GIT_AUTHOR_NAME=carboy", "GIT_AUTHOR_EMAIL=carboy@localhost", "GIT_AUTHOR_DATE=2026-01-01T00:00:00Z",
	"GIT_COMMITTER_NAME=carboy", "GIT_COMMITTER_EMAIL=carboy@localhost", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z",
}

// content is text of a length between 200 and 4,000 that is the same in each
// run.
func content(r *rand.Rand) []byte {
	b := make([]byte, 200+r.IntN(3800))
	const letters = "abcdefghijklmnopqrstuvwxyz      \n"
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return b
}

func fixed() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// fillGit makes a repository of n files, 40 in a directory, all committed.
func (w *world) fillGit(ctx context.Context, dir string, n int) error {
	git, err := look("git")
	if err != nil {
		return err
	}
	r := fixed()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%02d/p%03d", i/40%20, i/40))
		if i%40 == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%02d.txt", i%40)), content(r), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "all"}, {"gc", "-q"},
	} {
		argv := append([]string{git, "-C", dir, "-c", "gc.autoDetach=false"}, args...)
		if _, err := w.run(ctx, command{argv: argv, env: gitEnv}); err != nil {
			return err
		}
	}
	return nil
}

// fillArchive makes an archive of n directories of ten small files.
func fillArchive(dir string, n int) (err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "files.tar"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tw, r := tar.NewWriter(f), fixed()
	for i := range n {
		for j := range 10 {
			b := content(r)
			h := &tar.Header{Name: fmt.Sprintf("package%03d/lib/file%d.js", i, j), Mode: 0o644, Size: int64(len(b)), Format: tar.FormatUSTAR}
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			if _, err := tw.Write(b); err != nil {
				return err
			}
		}
	}
	return tw.Close()
}

// goEnv makes go work without a network and away from the user's caches. The
// paths are seen from the work's own directory.
var goEnv = []string{
	"GOFLAGS=-trimpath", "GOPROXY=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOENV=off", "GOTELEMETRY=off", "GOWORK=off", "GO111MODULE=on",
}

// goPath is a PATH with the machine's own Go in it.
func goPath() string {
	path := "/usr/local/bin:/usr/bin:/bin"
	if p, err := look("go"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			path = filepath.Dir(p) + ":" + path
		}
	}
	return path
}

// goFiles are a module of three packages. The names of files that would be
// looked at by tools of this repository end in .txt here.
var goFiles = map[string]string{
	"go.mod": "module example.test/work\n\ngo 1.21\n",
	"words/words.go": `package words

import "strings"

// Count counts each word of a text.
func Count(text string) map[string]int {
	n := map[string]int{}
	for _, w := range strings.Fields(strings.ToLower(text)) {
		n[w]++
	}
	return n
}
`,
	"words/words_test.go": `package words

import "testing"

func TestCount(t *testing.T) {
	if n := Count("a B b")["b"]; n != 2 {
		t.Error(n)
	}
}
`,
	"doc/doc.go": `package doc

import (
	"encoding/json"
	"example.test/work/words"
)

// Describe says in JSON which words a text has.
func Describe(text string) ([]byte, error) { return json.Marshal(words.Count(text)) }
`,
	"doc/doc_test.go": `package doc

import "testing"

func TestDescribe(t *testing.T) {
	if b, err := Describe("a a"); err != nil || string(b) != "{\"a\":2}" {
		t.Error(string(b), err)
	}
}
`,
	"sums/sums.go": `package sums

import "crypto/sha256"

// Chain hashes a hash n times.
func Chain(n int) (h [32]byte) {
	for range make([]struct{}, n) {
		h = sha256.Sum256(h[:])
	}
	return h
}
`,
	"sums/sums_test.go": `package sums

import "testing"

func TestChain(t *testing.T) {
	if Chain(1000) == Chain(1001) {
		t.Error("equal")
	}
}
`,
}

// fillGo makes a module, and a cache that has all that it imports.
func (w *world) fillGo(ctx context.Context, dir string) error {
	p, err := look("go")
	if err != nil {
		return err
	}
	if p, err = filepath.EvalSymlinks(p); err != nil {
		return err
	}
	if !strings.HasPrefix(p, "/usr/") {
		return fmt.Errorf("%s is not below /usr, which is what sandboxes see", p)
	}
	for name, text := range goFiles {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	script := "set -e\ncd \"$W\"\n" + goDirs + "mkdir -p tmp\ngo test ./... >/dev/null"
	_, err = w.run(ctx, command{argv: []string{"/bin/sh", "-c", script}, env: append(goEnv, "PATH="+goPath(), "W="+dir)})
	return err
}

// goDirs puts all that go writes below the work's directory.
const goDirs = "export GOCACHE=\"$W/cache\" GOPATH=\"$W/path\" GOTMPDIR=\"$W/tmp\" HOME=\"$W\"\n"

// removeAll is os.RemoveAll, for trees with directories that can't be written.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // where it does not help, the removal says so
		}
		return nil
	})
	return os.RemoveAll(dir)
}
