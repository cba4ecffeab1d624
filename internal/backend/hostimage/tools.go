package hostimage

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Tool is a directory of the host with a known toolchain in it that is not
// below /usr. It is seen read-only at its own path.
type Tool struct {
	Name   string   `json:"name"`   // "rustup"
	Path   string   `json:"path"`   // absolute, on the host and inside
	Search []string `json:"search"` // directories of programs in it, absolute, the best first
	// Env are variables by which the toolchain finds itself where HOME is not
	// what it was when it was installed.
	Env map[string]string `json:"env"`
	Dev uint64            `json:"dev"` // which directory it was when it was found
	Ino uint64            `json:"ino"`
}

// known are the toolchains that people install outside /usr. None of these
// directories is one in which the tool keeps credentials: cargo's are in
// .cargo, npm's in .npmrc, pip's and uv's in .config, and are not shown.
var known = []struct {
	name   string
	path   string   // below the home directory, or absolute
	search []string // below path; a * stands for one directory, the highest first
	env    string   // variable that holds a directory
	envDir string   // that directory, below the home; default: path
}{
	{"opt", "/opt", []string{"bin", "*/bin"}, "", ""},
	{"cargo", ".cargo/bin", []string{"."}, "", ""},
	{"rustup", ".rustup", nil, "RUSTUP_HOME", ""},
	{"nvm", ".nvm/versions", []string{"node/*/bin"}, "NVM_DIR", ".nvm"},
	{"pyenv", ".pyenv", []string{"shims", "bin"}, "PYENV_ROOT", ""},
	{"uv", ".local/share/uv", []string{"python/*/bin"}, "", ""},
	{"go", "go/bin", []string{"."}, "", ""},
	{"go-sdk", "sdk", []string{"go*/bin"}, "", ""},
}

// Tools looks for toolchains in /opt and in a home directory, "" for none. A
// directory that is reached over a symbolic link below the home is left out:
// its owner could point it anywhere.
func Tools(home string) []Tool {
	var out []Tool
	for _, k := range known {
		base := "/"
		if !filepath.IsAbs(k.path) {
			base = home
		}
		if !filepath.IsAbs(base) || filepath.Clean(base) != base {
			continue
		}
		dir := filepath.Join(base, k.path)
		st, err := statBeneath(base, strings.TrimPrefix(k.path, "/"))
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || isEmpty(dir) {
			continue
		}
		t := Tool{Name: k.name, Path: dir, Dev: st.Dev, Ino: st.Ino}
		for _, s := range k.search {
			t.Search = append(t.Search, searched(dir, s)...)
		}
		if k.env != "" {
			at := dir
			if k.envDir != "" {
				at = filepath.Join(home, k.envDir)
			}
			t.Env = map[string]string{k.env: at}
		}
		out = append(out, t)
	}
	return out
}

// statBeneath looks at a directory below base without following a link.
func statBeneath(base, rel string) (st unix.Stat_t, err error) {
	f, err := os.OpenFile(base, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return st, err
	}
	dir := beneath.In(f)
	defer dir.Close()
	if st, err = dir.Stat(rel); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	return st, err
}

// searched returns the directories that match, the highest version first.
func searched(dir, pattern string) []string {
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil
	}
	slices.SortFunc(found, func(a, b string) int { return -compareVersions(a, b) })
	return found
}

// compareVersions orders names as people do: v9 before v10.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, restA := leading(a)
		y, restB := leading(b)
		if c := len(x) - len(y); c != 0 && isDigit(x[0]) && isDigit(y[0]) {
			return c
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return len(a) - len(b)
}

// leading cuts off a number without its leading zeros, or one other byte.
func leading(s string) (first, rest string) {
	if !isDigit(s[0]) {
		return s[:1], s[1:]
	}
	n := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if n < 0 {
		n = len(s)
	}
	digits := strings.TrimLeft(s[:n], "0")
	if digits == "" {
		digits = "0"
	}
	return digits, s[n:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isEmpty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return !errors.Is(err, os.ErrPermission)
	}
	defer f.Close()
	names, _ := f.Readdirnames(1)
	return len(names) == 0
}
