package ext4_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// grower makes trees that are the same for the same seed.
type grower struct {
	r     *rand.Rand
	files []string // that can be linked once more
	left  int      // entries
	bytes int64    // of contents
	errs  []error
}

// grow fills a directory with so many entries at most, and so many bytes.
func grow(t *testing.T, seed uint64, dir string, entries int, bytes int64) {
	t.Helper()
	g := newGrower(seed, entries, bytes)
	for g.left > 0 && len(g.errs) == 0 {
		g.directory(dir, entries, 0)
	}
	if err := errors.Join(g.errs...); err != nil {
		t.Fatal(err)
	}
}

func newGrower(seed uint64, entries int, bytes int64) *grower {
	return &grower{r: rand.New(rand.NewPCG(seed, 1)), left: entries, bytes: bytes}
}

func (g *grower) note(err error) {
	if err != nil {
		g.errs = append(g.errs, err)
	}
}

func (g *grower) directory(dir string, entries, depth int) {
	for ; entries > 0 && g.left > 0 && len(g.errs) == 0; entries-- {
		g.left--
		path := filepath.Join(dir, g.name())
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		switch k := g.r.IntN(20); {
		case k < 4 && len(path) < 3000:
			g.note(os.Mkdir(path, 0o700|os.FileMode(g.r.IntN(0o100))))
			below := g.r.IntN(entries)
			if k == 0 && depth < 3 { // a deep one
				for range g.r.IntN(30) {
					g.left--
					path = filepath.Join(path, g.name())
					g.note(os.MkdirAll(path, 0o755))
				}
			}
			g.directory(path, below, depth+1)
		case k < 6:
			g.note(os.Symlink(g.text([]int{1, 58, 59, 60, 61, 200, 900}[g.r.IntN(7)]), path))
		case k == 6:
			g.note(unix.Mkfifo(path, 0o600))
		case k < 9 && len(g.files) > 0:
			g.note(os.Link(g.files[g.r.IntN(len(g.files))], path))
		default:
			g.file(path)
			g.files = append(g.files, path)
		}
	}
}

// name is short, long or strange. It is not quoted for anybody.
func (g *grower) name() string {
	switch g.r.IntN(8) {
	case 0:
		return g.text(1 + g.r.IntN(255))
	case 1:
		return []string{"a\nb", "\n", " ", "-rf", "\"q\" 'r'", "\\", "é", "日本", "\xff\xfe", "a\tb", "<1>", "$(x)", ";", "...", "~", "\x01\x7f"}[g.r.IntN(16)] + fmt.Sprint(g.r.IntN(50))
	case 2:
		return strings.Repeat("n", 255-g.r.IntN(3))
	}
	return fmt.Sprintf("name-%d", g.r.IntN(1e6))
}

func (g *grower) text(length int) string {
	b := make([]byte, length)
	for i := range b {
		for b[i] == 0 || b[i] == '/' {
			b[i] = byte(g.r.Uint32())
		}
	}
	if s := string(b); s == "." || s == ".." {
		return "dots"
	}
	return string(b)
}

func (g *grower) file(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		g.note(err)
		return
	}
	defer f.Close()
	switch g.r.IntN(8) {
	case 0:
		g.write(f, 0, int64(1+g.r.IntN(60)))
	case 1:
		g.write(f, 0, int64(60+g.r.IntN(120)))
	case 2: // islands in a sea of holes
		for range 1 + g.r.IntN(20) {
			g.write(f, g.r.Int64N(24<<20), 1+g.r.Int64N(5000))
		}
	case 3:
		g.note(f.Truncate(g.r.Int64N(1 << 20)))
	case 4:
		g.write(f, 0, 1+g.r.Int64N(200<<10))
	case 5:
		g.write(f, 0, 4096*(1+g.r.Int64N(20)))
	case 6: // far out
		g.write(f, 4<<30+g.r.Int64N(1<<20), 10)
	}
	if g.r.IntN(4) == 0 {
		g.note(f.Chmod(os.FileMode(g.r.IntN(0o1000)) | 0o400))
		g.note(unix.Fsetxattr(int(f.Fd()), "user.mark", []byte(g.text(1+g.r.IntN(150))), 0))
	}
}

func (g *grower) write(f *os.File, at, length int64) {
	if g.bytes -= length + 4096; g.bytes < 0 {
		return
	}
	b := make([]byte, length)
	for i := 0; i < len(b); i += 8 {
		copy(b[i:], le.AppendUint64(nil, g.r.Uint64()))
	}
	if g.r.IntN(4) == 0 && length > 4 { // what a journal must escape
		copy(b, "\xc0\x3b\x39\x98")
	}
	_, err := f.WriteAt(b, at)
	g.note(err)
}
