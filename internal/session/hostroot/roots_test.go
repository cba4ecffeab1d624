package hostroot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

// dirs makes directories below a new one, which it returns.
func dirs(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.MkdirAll(filepath.Join(root, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func newRoots(t *testing.T, c hostroot.Config) *hostroot.Roots {
	t.Helper()
	r, err := hostroot.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func isDir(t *testing.T, path string) bool {
	t.Helper()
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

func TestRootsOpen(t *testing.T) {
	root := dirs(t, "allowed/ws", "allowed-not/ws", "other/ws", "state/box/ws")
	at := func(p string) string { return filepath.Join(root, p) }
	link(t, at("other/ws"), at("allowed/out"))
	link(t, "../other", at("allowed/up"))
	link(t, at("allowed/ws"), at("other/in"))
	link(t, "/etc", at("allowed/etc"))
	link(t, "/", at("allowed/top"))
	link(t, at("nowhere"), at("allowed/dangling"))
	link(t, at("allowed"), at("by-another-name"))
	if err := os.WriteFile(at("allowed/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config := hostroot.Config{
		AllowedMountRoots: []string{at("allowed"), at("state/box"), at("missing")}, Private: []string{at("state")},
	}
	for _, tt := range []struct {
		name, path, want string // what the error has; "": none
		kind             sandbox.Kind
	}{
		{"the-root-itself", at("allowed"), "", ""},
		{"below", at("allowed/ws"), "", ""},
		{"by-a-link-into-it", at("other/in"), "", ""},
		{"root-by-another-name", at("by-another-name/ws"), "", ""},
		{"dots-that-stay", at("allowed/ws") + "/../ws", "", ""},
		{"slashes", at("allowed") + "//ws/", "", ""},
		{"beside", at("other/ws"), "host_path is outside allowed_mount_roots: " + at("allowed"), sandbox.Denied},
		{"a-name-that-only-begins-alike", at("allowed-not/ws"), "outside allowed_mount_roots", sandbox.Denied},
		{"above", root, "", sandbox.Denied},
		{"link-out", at("allowed/out"), "outside allowed_mount_roots", sandbox.Denied},
		{"relative-link-out", at("allowed/up/ws"), "outside allowed_mount_roots", sandbox.Denied},
		{"dots-out", at("allowed") + "/../other/ws", "outside allowed_mount_roots", sandbox.Denied},
		{"link-to-closed", at("allowed/etc"), "blocked for security", sandbox.Denied},
		{"link-to-below-closed", at("allowed/etc/ssl"), "blocked for security", sandbox.Denied},
		{"link-to-what-holds-closed", at("allowed/top"), "blocked for security", sandbox.Denied},
		{"through-proc", "/proc/self/root" + at("other/ws"), "outside allowed_mount_roots", sandbox.Denied},
		{"through-proc-and-back", "/proc/self/root" + at("allowed/ws"), "", ""},
		{"closed", "/proc/self", "host_path /proc/self is blocked for security", sandbox.Denied},
		{"open-place", "/run", "name a directory in there in allowed_mount_roots", sandbox.Denied},
		{"private", at("state"), "blocked for security", sandbox.Denied},
		{"allowed-in-private", at("state/box/ws"), "", ""},
		{"file", at("allowed/file"), "host_path must point to an existing directory on the host", sandbox.Invalid},
		{"missing", at("allowed/none"), "host_path must point to an existing directory on the host", sandbox.Invalid},
		{"dangling", at("allowed/dangling"), "must point to an existing directory", sandbox.Invalid},
		// Whoever may not name a place is not told whether it is there.
		{"missing-outside", at("other/none"), "outside allowed_mount_roots", sandbox.Denied},
		{"missing-behind-a-link", at("allowed/out/none"), "outside allowed_mount_roots", sandbox.Denied},
		{"relative", "ws", "must be an absolute host path", sandbox.Invalid},
		{"windows", `C:\ws`, "must be an absolute host path", sandbox.Invalid},
		{"nul", at("allowed") + "\x00", "must be an absolute host path", sandbox.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := newRoots(t, config).Open(tt.path, hostroot.Access{})
			if sandbox.KindOf(err) != tt.kind || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Open(%s) = %v, want %q of kind %q", tt.path, err, tt.want, tt.kind)
			}
			if err != nil {
				return
			}
			defer d.Close()
			var st, held unix.Stat_t
			if err := unix.Lstat(d.Path, &st); err != nil {
				t.Fatal(err)
			}
			if err := unix.Fstat(int(d.File().Fd()), &held); err != nil {
				t.Fatal(err)
			}
			if d.Ino == 0 || d.Ino != st.Ino || d.Dev != st.Dev || held.Ino != d.Ino {
				t.Errorf("Open(%s) = %+v, which is not what is there", tt.path, d.HostDir)
			}
		})
	}
}

// What TestRootsOpen has refused is there, and is opened where it is allowed.
func TestRootsOpenControl(t *testing.T) {
	root := dirs(t, "allowed/ws", "other/ws")
	at := func(p string) string { return filepath.Join(root, p) }
	link(t, at("other/ws"), at("allowed/out"))
	r := newRoots(t, hostroot.Config{AllowedMountRoots: []string{root}, Private: []string{"/var/empty"}})
	for _, p := range []string{root, at("other/ws"), at("allowed/out"), at("allowed") + "/../other/ws"} {
		if err := r.Check(p); err != nil {
			t.Errorf("Check(%s) = %v", p, err)
		}
	}
}

func TestRootsNone(t *testing.T) {
	root := dirs(t, "ws")
	err := newRoots(t, hostroot.Config{}).Check(filepath.Join(root, "ws"))
	if sandbox.KindOf(err) != sandbox.Denied || !strings.Contains(err.Error(), "disabled because no allowed_mount_roots are configured") {
		t.Errorf("Check = %v", err)
	}
	if _, err := hostroot.New(hostroot.Config{HostRoot: "/a\x00"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("NewRoots = %v", err)
	}
}

// A directory that lies in a closed place may be named where the operator
// allowed one that lies there, and only then.
func TestRootsInClosedPlace(t *testing.T) {
	home, err := os.MkdirTemp("/root", "roots-*")
	if err != nil {
		t.Skip("needs to write in /root")
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	ws := filepath.Join(home, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	for allowed, want := range map[string]string{
		home: "", ws: "", "/root": "blocked for security", "/": "blocked for security",
	} {
		err := newRoots(t, hostroot.Config{AllowedMountRoots: []string{allowed}}).Check(ws)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %s allowed: Check = %v, want %q", allowed, err, want)
		}
	}
}

func TestRootsMake(t *testing.T) {
	root := dirs(t, "allowed/ws", "other")
	at := func(p string) string { return filepath.Join(root, p) }
	link(t, at("other"), at("allowed/out"))
	link(t, at("other/none"), at("allowed/dangling"))
	if err := os.WriteFile(at("allowed/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(at("allowed/ws"), 4242, 4243); err != nil {
			t.Fatal(err)
		}
	}
	r := newRoots(t, hostroot.Config{AllowedMountRoots: []string{at("allowed")}})
	d, err := r.Open(at("allowed/ws/tenants/a"), hostroot.Access{Make: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !isDir(t, at("allowed/ws/tenants/a")) || os.Geteuid() == 0 && (d.UID != 4242 || d.GID != 4243) {
		t.Errorf("Open = %+v, want a directory of its parent's owner", d.HostDir)
	}
	for _, p := range []string{"allowed/out/new", "allowed/dangling", "allowed/dangling/new", "allowed/file/new", "other/new", "allowed/../other/new"} {
		if d, err := r.Open(at(p), hostroot.Access{Make: true}); err == nil {
			t.Errorf("made %s", d.Path)
		}
	}
	entries, err := os.ReadDir(at("other"))
	if err != nil || len(entries) > 0 {
		t.Errorf("outside there is %v, %v", entries, err)
	}
}

func TestRootsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a directory away")
	}
	root := dirs(t, "ws")
	ws := filepath.Join(root, "ws")
	if err := os.Chown(ws, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	r := newRoots(t, hostroot.Config{AllowedMountRoots: []string{root}})
	for uid, ok := range map[uint32]bool{4242: true, 4243: false, 0: true} {
		d, err := r.Open(ws, hostroot.Access{UID: &uid})
		if (err == nil) != ok {
			t.Errorf("uid %d: Open = %v, want ok %v", uid, err, ok)
		}
		if err == nil {
			_ = d.Close()
		}
	}
}

// A name that is swapped under way leads to what is allowed, or to an error.
func TestRootsRace(t *testing.T) {
	root := dirs(t, "allowed/ws/real", "other/real")
	at := func(p string) string { return filepath.Join(root, p) }
	link(t, at("other"), at("allowed/out"))
	r := newRoots(t, hostroot.Config{AllowedMountRoots: []string{at("allowed")}})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ws is now a directory, now a link out
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("allowed/ws"), unix.AT_FDCWD, at("allowed/out"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	var in, refused int
	for i := 0; i < 20_000 && (i < 2000 || in == 0 || refused == 0); i++ {
		d, err := r.Open(at("allowed/ws/real"), hostroot.Access{Make: i%2 == 0})
		if err != nil {
			refused++
			continue
		}
		in++
		var st unix.Stat_t
		if err := unix.Stat(at("other/real"), &st); err != nil {
			t.Fatal(err)
		}
		if d.Ino == st.Ino || strings.HasPrefix(d.Path, at("other")) {
			t.Fatalf("Open = %+v, which is outside", d.HostDir)
		}
		_ = d.Close()
	}
	close(stop)
	<-done
	if in == 0 || refused == 0 {
		t.Errorf("%d opened and %d refused: nothing was swapped", in, refused)
	}
}

func TestRootsPaths(t *testing.T) {
	root := dirs(t, "real")
	at := func(p string) string { return filepath.Join(root, p) }
	link(t, at("real"), at("link"))
	for _, tt := range []struct {
		name                 string
		config               hostroot.Config
		host, workspace, all string
	}{
		{"none", hostroot.Config{}, "", "", ""},
		{"derived", hostroot.Config{HostRoot: at("link/new")}, at("real/new"), at("real/new/default"), at("real/new")},
		{
			"relative",
			hostroot.Config{HostRoot: at("real"), DefaultWorkspace: "ws", AllowedMountRoots: []string{" ", at("link")}},
			at("real"), at("real/ws"), at("real"),
		},
		{
			"absolute",
			hostroot.Config{HostRoot: at("real"), DefaultWorkspace: at("a"), AllowedMountRoots: []string{at("c"), at("d")}},
			at("real"), at("a"), at("c") + " " + at("d"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoots(t, tt.config)
			got := []string{r.HostRoot(), r.DefaultWorkspace(), strings.Join(r.Allowed(), " ")}
			want := []string{tt.host, tt.workspace, tt.all}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
}

func TestRootsMakeDefault(t *testing.T) {
	root := dirs(t, "allowed", "there", "other")
	at := func(p string) string { return filepath.Join(root, p) }
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link(t, at("other"), at("allowed/out"))
	for _, tt := range []struct {
		name   string
		config hostroot.Config
		made   string
		want   string // of the error; "": none
	}{
		{"none", hostroot.Config{}, "", ""},
		{"host-root-that-is-not-there", hostroot.Config{HostRoot: at("new/box")}, at("new/box/default"), ""},
		{"in-an-allowed-root", hostroot.Config{DefaultWorkspace: at("allowed/ws"), AllowedMountRoots: []string{at("allowed")}}, at("allowed/ws"), ""},
		{"there-already", hostroot.Config{DefaultWorkspace: at("there")}, at("there"), ""},
		{"a-file", hostroot.Config{DefaultWorkspace: at("file"), AllowedMountRoots: []string{root}}, "", "must point to a directory on the host"},
		{"no-roots", hostroot.Config{DefaultWorkspace: at("x")}, "", "no allowed_mount_roots are configured"},
		{"outside", hostroot.Config{DefaultWorkspace: at("x"), AllowedMountRoots: []string{at("allowed")}}, "", "default_workspace is outside allowed_mount_roots: " + at("allowed")},
		{"behind-a-link-out", hostroot.Config{DefaultWorkspace: at("allowed/out/x"), AllowedMountRoots: []string{at("allowed")}}, "", "outside allowed_mount_roots"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoots(t, tt.config)
			err := r.MakeDefault()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("MakeDefault = %v, want %q", err, tt.want)
			}
			if tt.made != "" && !isDir(t, tt.made) {
				t.Errorf("%s was not made", tt.made)
			}
			if isDir(t, at("x")) || isDir(t, at("other/x")) {
				t.Error("something was made outside")
			}
		})
	}
}

func TestRootsNamed(t *testing.T) {
	r := newRoots(t, hostroot.Config{AllowedMountRoots: []string{"/nowhere/box"}})
	for path, ok := range map[string]bool{
		"/nowhere/box": true, "/nowhere/box/a": true, "/nowhere/box/..a": true,
		"/nowhere/boxer": false, "/nowhere/box/../x": false, "/nowhere": false, "/": false,
	} {
		if err := r.Named(path); (err == nil) != ok {
			t.Errorf("Named(%s) = %v, want ok %v", path, err, ok)
		}
	}
}
