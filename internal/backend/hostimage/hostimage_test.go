package hostimage_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A machine for tests: files by path; "-> x" is a link, a trailing slash a
// directory.
func machine(t *testing.T, extra map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"usr/bin/sh": "#!elf", "usr/bin/bash": "#!elf", "usr/sbin/": "", "usr/lib/os-release": "ID=test\n", "usr/local/bin/": "",
		"bin": "-> usr/bin", "sbin": "-> usr/sbin", "lib": "-> usr/lib",
		"etc/os-release": "-> ../usr/lib/os-release", "etc/services": "http 80/tcp\n",
		"etc/passwd": "root:x:0:0:Big Boss:/root:/bin/zsh\nalice:x:1001:1001:Alice,,555:/home/alice:/bin/zsh\npostgres:x:101:104:PG,,,:/var/lib/postgresql:/bin/bash\n",
		"etc/group":  "root:x:0:alice\nsudo:x:27:alice\nalice:x:1001:\nssl-cert:x:103:postgres\n",
	}
	for k, v := range extra {
		files[k] = v
	}
	for name, content := range files {
		p := filepath.Join(root, name)
		dir := filepath.Dir(p)
		if strings.HasSuffix(name, "/") {
			dir = p
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, p)
		} else if dir != p {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "usr/bin/bash"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func skeleton(t testing.TB, cache string, o hostimage.Options) hostimage.Root {
	t.Helper()
	r, err := hostimage.Skeleton(t.Context(), cache, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, r hostimage.Root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.Dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestAccountsAreNobodys(t *testing.T) {
	r := skeleton(t, t.TempDir(), hostimage.Options{HostRoot: machine(t, nil)})
	wantPasswd := `root:*:0:0::/root:/bin/bash
postgres:*:101:104::/var/lib/postgresql:/usr/sbin/nologin
user:*:1000:1000::/home/user:/bin/bash
nobody:*:65534:65534::/nonexistent:/usr/sbin/nologin
`
	wantGroup := "root:*:0:\nsudo:*:27:\nssl-cert:*:103:\nuser:*:1000:\nnogroup:*:65534:\n"
	if d := cmp.Diff(wantPasswd, read(t, r, "etc/passwd")); d != "" {
		t.Errorf("passwd -want +got\n%s", d)
	}
	if d := cmp.Diff(wantGroup, read(t, r, "etc/group")); d != "" {
		t.Errorf("group -want +got\n%s", d)
	}
}

// planted are the secrets of a machine, each of which says so.
var planted = map[string]string{
	"etc/shadow":                     "root:SECRET:1::::::\n",
	"etc/gshadow":                    "SECRET",
	"etc/machine-id":                 "SECRET",
	"etc/ssl/private/key.pem":        "SECRET",
	"etc/ssl/certs/ok.pem":           "public",
	"etc/ssl/certs/to-key.pem":       "-> ../private/key.pem",
	"etc/ssl/certs/to-home.pem":      "-> /root/SECRET.pem",
	"etc/ssl/certs/with-key.pem":     "-----BEGIN CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\nSECRET\n",
	"etc/ssl/certs/unreadable.pem":   "SECRET",
	"etc/ssh/ssh_host_rsa_key":       "SECRET",
	"etc/python3.99":                 "-> /root",
	"etc/perl":                       "-> ../root",
	"etc/maven/settings.xml":         "<password>SECRET</password>",
	"etc/maven/m2.conf":              "public",
	"etc/apt/apt.conf.d/99proxy":     "SECRET",
	"etc/apt/apt.conf.d/70debconf":   "public",
	"etc/apt/sources.list":           "deb https://u:SECRET@h/ x",
	"etc/apt/auth.conf.d/h":          "SECRET",
	"etc/pip.conf":                   "SECRET",
	"etc/npmrc":                      "SECRET",
	"etc/environment":                "SECRET",
	"etc/profile":                    "export TOKEN=SECRET",
	"etc/bash.bashrc":                "export TOKEN=SECRET",
	"etc/hosts":                      "10.0.0.1 SECRET",
	"etc/resolv.conf":                "nameserver SECRET",
	"root/SECRET.pem":                "SECRET",
	"root/SECRET":                    "SECRET",
	"home/alice/.ssh/id_rsa":         "SECRET",
	"var/lib/docker/SECRET":          "SECRET",
	"var/cache/debconf/passwords.db": "SECRET",
	"var/run/docker.sock":            "SECRET",
}

// leaks lists what in a tree names or holds a planted secret.
func leaks(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := d.Name()
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			text += " " + target
		case d.Type().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += " " + string(b)
		}
		if strings.Contains(text, "SECRET") || strings.Contains(text, "private") {
			out = append(out, strings.TrimPrefix(p, dir))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPlantedSecretsStayOut(t *testing.T) {
	root := machine(t, planted)
	if err := os.Chmod(filepath.Join(root, "etc/ssl/certs/unreadable.pem"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/ssl/certs/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := leaks(t, root); len(got) < 20 {
		t.Fatalf("the search for secrets is blind: it finds %q", got) // the negative control
	}
	r := skeleton(t, t.TempDir(), hostimage.Options{HostRoot: root})
	if got := leaks(t, r.Dir); len(got) > 0 {
		t.Errorf("in the image: %q", got)
	}
	for _, name := range []string{"etc/ssl/certs/ok.pem", "etc/maven/m2.conf", "etc/apt/apt.conf.d/70debconf"} {
		if got := read(t, r, name); got != "public" {
			t.Errorf("%s = %q", name, got)
		}
	}
	noted := func(p string) bool {
		return slices.ContainsFunc(r.Notes, func(n hostimage.Note) bool { return n.Path == p })
	}
	for _, p := range []string{"to-key.pem", "to-home.pem", "with-key.pem", "unreadable.pem", "pipe"} {
		if !noted("/etc/ssl/certs/" + p) {
			t.Errorf("nothing says that %s was left out", p)
		}
	}
}

func TestSkeletonIsKeptUntilItsSourcesChange(t *testing.T) {
	root, cache := machine(t, nil), t.TempDir()
	o := hostimage.Options{HostRoot: root, BootID: "one"}
	a := skeleton(t, cache, o)
	before := inode(t, a.Dir)
	if b := skeleton(t, cache, o); b.Dir != a.Dir || inode(t, b.Dir) != before {
		t.Error("an unchanged machine gave another skeleton")
	}
	if err := os.WriteFile(filepath.Join(root, "etc/services"), []byte("https 443/tcp\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := skeleton(t, cache, o)
	if c.Dir == a.Dir || read(t, c, "etc/services") != "https 443/tcp\n" {
		t.Error("a changed machine gave the old skeleton")
	}
	if _, err := os.Stat(a.Dir); err != nil {
		t.Error("a skeleton of this boot was deleted; an instance may run on it")
	}
	if d := skeleton(t, cache, hostimage.Options{HostRoot: root, BootID: "two"}); d.Dir == c.Dir {
		t.Error("a skeleton of another boot was trusted")
	}
	if names, err := os.ReadDir(cache); err != nil || len(names) != 1 {
		t.Errorf("cache = %v, %v; want only this boot's", names, err)
	}
}

func inode(t *testing.T, p string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(p, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestBuildersRace(t *testing.T) {
	root, cache := machine(t, nil), t.TempDir()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := hostimage.Skeleton(t.Context(), cache, hostimage.Options{HostRoot: root}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if names, err := os.ReadDir(cache); err != nil || len(names) != 1 {
		t.Errorf("cache = %v, %v; want one skeleton", names, err)
	}
}

func TestDamagedSkeletonIsReplaced(t *testing.T) {
	root, cache := machine(t, nil), t.TempDir()
	r := skeleton(t, cache, hostimage.Options{HostRoot: root})
	if err := os.WriteFile(filepath.Join(filepath.Dir(r.Dir), "image.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	r = skeleton(t, cache, hostimage.Options{HostRoot: root})
	if read(t, r, "etc/hostname") != "carboy\n" {
		t.Error("not replaced")
	}
}

func TestCanceledBuildLeavesNothing(t *testing.T) {
	cache := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := hostimage.Skeleton(ctx, cache, hostimage.Options{HostRoot: machine(t, nil)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Skeleton = %v, want canceled", err)
	}
	if names, err := os.ReadDir(cache); err != nil || len(names) != 0 {
		t.Errorf("cache = %v, %v", names, err)
	}
}

func TestUnsupportedHosts(t *testing.T) {
	for name, remove := range map[string]string{"no-usr": "usr", "no-shell": "usr/bin/sh"} {
		root := machine(t, nil)
		if err := os.RemoveAll(filepath.Join(root, remove)); err != nil {
			t.Fatal(err)
		}
		if _, err := hostimage.Skeleton(t.Context(), t.TempDir(), hostimage.Options{HostRoot: root}); sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("%s: Skeleton = %v, want unsupported", name, err)
		}
	}
	for _, hostname := range []string{"a b", "x\ny", strings.Repeat("a", 64)} {
		if _, err := hostimage.Skeleton(t.Context(), t.TempDir(), hostimage.Options{Hostname: hostname}); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("host name %q: %v, want invalid", hostname, err)
		}
	}
}

func TestLayouts(t *testing.T) {
	merged := machine(t, map[string]string{"var/lib/dpkg/status": "", "usr/local/etc/x": "", "lib64": "-> /home/lib64"})
	r := skeleton(t, t.TempDir(), hostimage.Options{HostRoot: merged})
	want := []hostimage.Part{{Path: "/usr", Source: merged + "/usr"}, {Path: "/var/lib/dpkg", Source: merged + "/var/lib/dpkg"}}
	if d := cmp.Diff(want, r.Parts); d != "" {
		t.Errorf("parts -want +got\n%s", d)
	}
	if len(r.Masks) != 1 || r.Masks[0].Path != "/usr/local/etc" {
		t.Errorf("masks = %v", r.Masks)
	}
	if target, err := os.Readlink(filepath.Join(r.Dir, "bin")); target != "usr/bin" {
		t.Errorf("bin = %q, %v", target, err)
	}
	if _, err := os.Lstat(filepath.Join(r.Dir, "lib64")); err == nil {
		t.Error("a top link out of /usr was taken")
	}

	split := machine(t, nil)
	if err := os.Remove(filepath.Join(split, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(split, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(split, "usr/bin/sh"), filepath.Join(split, "bin/sh")); err != nil {
		t.Fatal(err)
	}
	r = skeleton(t, t.TempDir(), hostimage.Options{HostRoot: split})
	if !slices.Contains(r.Parts, hostimage.Part{Path: "/bin", Source: split + "/bin"}) {
		t.Errorf("parts = %v, want /bin among them", r.Parts)
	}
}

func TestBrokenCommandsAreNoted(t *testing.T) {
	root := machine(t, map[string]string{
		"root/.pyenv/bin/python": "#!elf", "opt/tool/bin/tool": "#!elf",
		"usr/local/bin/python":  "-> /root/.pyenv/bin/python",
		"usr/local/bin/tool":    "-> ../../../opt/tool/bin/tool",
		"usr/local/bin/pip":     "#!/root/.pyenv/bin/python -s\n",
		"usr/local/bin/ok":      "#!/bin/sh\n",
		"usr/bin/fine":          "-> /etc/alternatives/fine",
		"etc/alternatives/fine": "-> /usr/bin/sh",
		"usr/bin/lost":          "-> /etc/alternatives/lost",
		"etc/alternatives/lost": "-> /opt/tool/bin/tool",
		"usr/bin/loop":          "-> loop",
	})
	r := skeleton(t, t.TempDir(), hostimage.Options{HostRoot: root})
	var got []string
	for _, n := range r.Notes {
		if strings.Contains(n.Text, "broken") {
			got = append(got, n.Path)
		}
	}
	slices.Sort(got)
	want := []string{"/usr/bin/lost", "/usr/local/bin/pip", "/usr/local/bin/python", "/usr/local/bin/tool"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("broken -want +got\n%s", d)
	}
}

func TestSearchPath(t *testing.T) {
	r := hostimage.Root{Parts: []hostimage.Part{{Path: "/usr"}}, Masks: []hostimage.Mask{{Path: "/usr/etc"}}}
	got, hidden := r.SearchPath("/root/bin:/usr/local/go/bin:.::/usr/bin:/usr/etc/bin:/usrlocal:/usr/../root/bin", nil)
	if want := "/usr/local/go/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"; got != want {
		t.Errorf("SearchPath = %q, want %q", got, want)
	}
	if want := []string{"/root/bin", "/usr/etc/bin", "/usrlocal"}; !slices.Equal(hidden, want) {
		t.Errorf("hidden = %q, want %q", hidden, want)
	}
	got, hidden = r.SearchPath("/root/bin", []hostimage.Tool{{Path: "/root/bin", Search: []string{"/root/bin"}}})
	if !strings.HasPrefix(got, "/root/bin:") || len(hidden) > 0 {
		t.Errorf("with a tool: SearchPath = %q, hidden %q", got, hidden)
	}
}

func TestModes(t *testing.T) {
	old := syscall.Umask(0o077) // a daemon's
	defer syscall.Umask(old)
	root := machine(t, nil)
	for _, p := range []string{"etc", "etc/services", "usr", "usr/bin"} {
		mode := os.FileMode(0o755)
		if p == "etc/services" {
			mode = 0o4644
		}
		if err := os.Chmod(filepath.Join(root, p), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "etc/passwd"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "etc/group"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := skeleton(t, t.TempDir(), hostimage.Options{HostRoot: root})
	for name, want := range map[string]fs.FileMode{
		".": fs.ModeDir | 0o755, "tmp": fs.ModeDir | fs.ModeSticky | 0o777, "root": fs.ModeDir | 0o700, "home/user": fs.ModeDir | 0o755,
		"etc/services": 0o644, "etc/passwd": 0o644, "var/tmp": fs.ModeDir | fs.ModeSticky | 0o777,
	} {
		if fi, err := os.Lstat(filepath.Join(r.Dir, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
}
