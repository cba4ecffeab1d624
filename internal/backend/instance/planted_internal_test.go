package instance

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// planted is an instance's directory as the one before left it, with links to the
// host's: what is to be made on its disk and in its root is made as a start
// does, where nothing is mounted.
type planted struct {
	c    *composer
	host string // a directory that no instance may reach
}

func newPlanted(t *testing.T, links map[string]string) planted {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files get other owners")
	}
	base := t.TempDir()
	host := filepath.Join(base, "host")
	must(t, os.MkdirAll(filepath.Join(host, "upper"), 0o751))
	must(t, os.Chmod(host, 0o751))
	must(t, os.WriteFile(filepath.Join(host, "secret"), []byte("secret\n"), 0o640))
	must(t, os.Chown(host, 7, 7))
	t.Chdir(base)
	must(t, errors.Join(os.MkdirAll("m/root", 0o755), os.MkdirAll("m/disk", 0o755), os.Mkdir("m/low", 0o755), os.Mkdir("m/share", 0o755)))
	for name, to := range links {
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.Symlink(filepath.Join(host, to), name))
	}
	raw, err := beneath.OpenDir(atDisk)
	must(t, err)
	layers, err := beneath.OpenDir(atDisk)
	must(t, err)
	p := planted{c: &composer{layout: &Layout{}, raw: raw, layers: layers}, host: host}
	t.Cleanup(p.c.close)
	return p
}

func (p planted) unharmed(t *testing.T) {
	t.Helper()
	for name, want := range map[string]unix.Stat_t{
		"":       {Mode: unix.S_IFDIR | 0o751, Uid: 7, Gid: 7},
		"upper":  {Mode: unix.S_IFDIR | 0o751},
		"secret": {Mode: unix.S_IFREG | 0o640},
	} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(p.host, name), &st))
		if st.Mode != want.Mode || st.Uid != want.Uid || st.Gid != want.Gid {
			t.Errorf("%q has mode %#o and is %d:%d's", name, st.Mode, st.Uid, st.Gid)
		}
	}
	names, err := os.ReadDir(p.host)
	must(t, err)
	below, err := os.ReadDir(filepath.Join(p.host, "upper"))
	must(t, err)
	if len(names) != 2 || len(below) != 0 {
		t.Errorf("there are %v and %v", names, below)
	}
}

// TestPlantedLinks: a start, and what reads and copies an instance's layers, lead to
// nothing outside of its disk and its root.
func TestPlantedLinks(t *testing.T) {
	overlay := func(p planted) error { return p.c.layerDirs(layerRoot, "m/low") }
	copies := func(p planted) error { return copyChanges(p.c.raw, io.Discard, workspace.Options{}) }
	saves := func(p planted) error {
		to, err := os.Open("m/share")
		if err != nil {
			return err
		}
		defer to.Close()
		_, err = saveLayers(p.c.raw, to, saveOrder{})
		return err
	}
	tests := []struct {
		name  string
		links map[string]string // what is a link, and to what of the host's
		do    func(p planted) error
	}{
		{"toolchain-in-root", map[string]string{"m/root/root": ""}, func(planted) error { return chmodInRoot("root", 0o711) }},
		{"mount-point", map[string]string{"m/root/srv": ""}, func(p planted) error { return p.c.mkdirInRoot("srv/data") }},
		{"mount-point-itself", map[string]string{"m/root/srv/data": ""}, func(p planted) error { return p.c.mkdirInRoot("srv/data") }},
		{"mask", map[string]string{"m/root/usr": ""}, func(planted) error {
			_, done, err := pointInRoot("/usr/upper")
			if err == nil {
				done()
			}
			return err
		}},
		{"workspace-in-root", map[string]string{"m/root/workspace": ""}, func(planted) error {
			_, done, err := pointInRoot("/workspace")
			if err == nil {
				done()
			}
			return err
		}},
		{"layer", map[string]string{"m/disk/root": ""}, overlay},
		{"upper-layer", map[string]string{"m/disk/root/upper": ""}, overlay},
		{"directory-of-the-upper-layer", map[string]string{"m/disk/root/upper/run": ""}, overlay},
		{"private-workspace", map[string]string{"m/disk/workspace": ""}, func(p planted) error { return p.c.private() }},
		{"own-directory", map[string]string{"m/disk/own": ""}, func(p planted) error {
			dir, err := p.c.ownDir(Dir{Mode: modeOwn, Target: "/data"})
			if err == nil {
				dir.Close()
			}
			return err
		}},
		{"pinned-directory", map[string]string{"m/share/.git": ""}, func(p planted) error {
			return inShare(func(root *beneath.Dir) error {
				return p.c.makeBeneath(root, workspace.Protect{Path: ".git/hooks", Dir: true})
			})
		}},
		{"pinned-file", map[string]string{"m/share/.git": ""}, func(p planted) error {
			return inShare(func(root *beneath.Dir) error {
				return p.c.makeBeneath(root, workspace.Protect{Path: ".git/config", Content: "x"})
			})
		}},
		{"point-that-is-looked-at", map[string]string{"m/share/a": ""}, func(planted) error {
			return inShare(func(root *beneath.Dir) error { _, err := statBeneath(root, "a/upper"); return err })
		}},
		{"changes-of-a-copy", map[string]string{"m/disk/workspace/copy": "", "m/disk/workspace/manifest": "secret"}, copies},
		{"saved-layer", map[string]string{"m/disk/workspace": ""}, saves},
		{"saved-upper-layer", map[string]string{"m/disk/workspace-over/upper": "", "m/disk/workspace-over/work": ""}, saves},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlanted(t, tt.links)
			if err := tt.do(p); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("got %v, want %v", err, unix.ELOOP)
			}
			p.unharmed(t)
		})
	}
}

func inShare(f func(root *beneath.Dir) error) error {
	root, err := beneath.OpenDir("m/share")
	if err != nil {
		return err
	}
	defer root.Close()
	return f(root)
}

// TestCopyIsMadeAnew: a half-made copy goes, its links themselves.
func TestCopyIsMadeAnew(t *testing.T) {
	p := newPlanted(t, map[string]string{"m/disk/workspace/copy": "", "m/disk/workspace/manifest.new": "secret"})
	var st unix.Stat_t
	must(t, os.WriteFile("m/low/f", nil, 0o644))
	must(t, unix.Stat("m/low", &st))
	must(t, populate(Dir{Source: "m/low", Dev: st.Dev, Ino: st.Ino}, p.c.raw, nil, nil))
	if !isCopy(p.c.raw) {
		t.Error("there is no copy")
	}
	if _, err := os.Lstat("m/disk/workspace/copy/f"); err != nil {
		t.Error(err)
	}
	p.unharmed(t)
}

// TestUnplanted is the control: without links, the same is done.
func TestUnplanted(t *testing.T) {
	p := newPlanted(t, nil)
	must(t, p.c.mkdirInRoot("root/.tool"))
	must(t, chmodInRoot("root", 0o711))
	must(t, p.c.layerDirs(layerRoot, "m/low"))
	must(t, p.c.layerDirs(layerRoot, "m/low"))
	must(t, inShare(func(root *beneath.Dir) error {
		return errors.Join(root.Mkdir(".git", 0o755), p.c.makeBeneath(root, workspace.Protect{Path: ".git/config", Content: "x"}))
	}))
	for name, want := range map[string]unix.Stat_t{
		"m/root/root":                 {Mode: unix.S_IFDIR | 0o711},
		"m/disk/root/upper/tmp":       {Mode: unix.S_IFDIR | 0o1777},
		"m/disk/root/upper/workspace": {Mode: unix.S_IFDIR | 0o755, Uid: guestUID, Gid: guestGID},
		"m/disk/root/work":            {Mode: unix.S_IFDIR | 0o700},
		"m/share/.git/config":         {Mode: unix.S_IFREG | 0o644, Uid: guestUID, Gid: guestGID},
	} {
		var st unix.Stat_t
		must(t, unix.Lstat(name, &st))
		if st.Mode != want.Mode || st.Uid != want.Uid || st.Gid != want.Gid {
			t.Errorf("%s has mode %#o and is %d:%d's", name, st.Mode, st.Uid, st.Gid)
		}
	}
}
