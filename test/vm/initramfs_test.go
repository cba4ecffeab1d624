package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kernel is one of Debian's, unpacked.
type kernel struct {
	image   string
	modules map[string]string // paths, by name
}

// findKernel returns the newest that scripts/deps.sh has unpacked.
func findKernel(t *testing.T) kernel {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	images, err := filepath.Glob(filepath.Join(cache, "carboy-test", "kernel", "*", "boot", "vmlinuz-*"))
	if err != nil || len(images) == 0 {
		t.Fatalf("the tests need a kernel to boot, which scripts/deps.sh gets (%v)", err)
	}
	slices.SortFunc(images, func(a, b string) int { return modified(t, a).Compare(modified(t, b)) })
	k := kernel{image: images[len(images)-1], modules: map[string]string{}}
	root := filepath.Dir(filepath.Dir(k.image))
	err = filepath.WalkDir(filepath.Join(root, "lib", "modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			k.modules[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// order returns modules with what they need before them. One that there is no
// file of is built in.
func (k kernel) order(t *testing.T, names ...string) (paths []string) {
	t.Helper()
	met := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		path := k.modules[name]
		if path == "" || met[name] {
			return
		}
		met[name] = true
		for _, n := range needs(t, path) {
			add(n)
		}
		paths = append(paths, path)
	}
	for _, n := range names {
		add(n)
	}
	return paths
}

// needs reads which other modules one names.
func needs(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Section(".modinfo").Data()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range bytes.Split(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(field), "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ",")
		}
	}
	return nil
}

// archive writes the first file system of a kernel, as cpio's format newc.
type archive struct {
	w   io.Writer
	n   int
	err error
}

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
	if pad := -len(b) & 3; a.err == nil && pad > 0 {
		_, a.err = a.w.Write(make([]byte, pad))
	}
}

func (a *archive) entry(name string, mode int, data []byte) {
	a.n++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write([]byte(head + name + "\x00"))
	a.write(data)
}

func (a *archive) dir(name string) { a.entry(name, 0o040755, nil) }

func (a *archive) file(name, from string) {
	data, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.entry(name, 0o100755, data)
}

func (a *archive) end() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := &archive{w: &b}
	a.dir("d")
	a.entry("d/f", 0o100644, []byte("abcde"))
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	if b.Len()%4 != 0 || !bytes.Contains(b.Bytes(), []byte("d/f\x00")) || !bytes.Contains(b.Bytes(), []byte("abcde\x00\x00\x00070701")) {
		t.Errorf("%q", b.Bytes())
	}
}
