package hostimage_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
)

// helper names the role in which the test binary was started.
const helper = "HOSTIMAGE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	if err := enter(os.Args[1], strings.Split(os.Args[2], ":"), os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
}

// enter lays the parts over a skeleton and becomes a command inside. It runs
// in mount and network namespaces of its own.
func enter(root string, parts, argv []string) error {
	for _, p := range append(parts, "/dev", "/proc") {
		at := filepath.Join(root, p)
		if err := unix.Mount(p, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", p, err)
		}
		if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", p, err)
		}
	}
	if err := unix.Chroot(root); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Exec("/bin/sh", append([]string{"sh", "-c", `exec "$@"`, "sh"}, argv...),
		[]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME=/home/user", "LC_ALL=C"})
}

// in runs a command in the image of this machine, without a network.
func in(t *testing.T, r hostimage.Root, argv ...string) (string, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to change its root directory")
	}
	var parts []string
	for _, p := range r.Parts {
		parts = append(parts, p.Path)
	}
	c := exec.Command("/proc/self/exe", append([]string{r.Dir, strings.Join(parts, ":")}, argv...)...)
	c.Env = append(os.Environ(), helper+"=enter")
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	return string(out), err
}

// thisMachine returns the image of the machine that runs the tests.
func thisMachine(t testing.TB) hostimage.Root {
	t.Helper()
	return skeleton(t, t.TempDir(), hostimage.Options{})
}

func TestThisMachinesSecretsStayOut(t *testing.T) {
	r := thisMachine(t)
	for _, n := range r.Notes {
		t.Logf("note: %s: %s", n.Path, n.Text)
	}
	for _, m := range r.Masks {
		t.Logf("mask: %s: %s", m.Path, m.Why)
	}
	forbidden := []string{"/etc/shadow", "/etc/gshadow", "/etc/machine-id", "/etc/ssl/private", "/etc/ssh", "/etc/sudoers", "/var/lib/docker", "/run/docker.sock", "/var/lib/dbus"}
	for _, p := range forbidden {
		if _, err := os.Lstat(filepath.Join(r.Dir, p)); err == nil {
			t.Errorf("%s is in the skeleton", p)
		}
		for _, part := range r.Parts {
			if p == part.Path || strings.HasPrefix(p, part.Path+"/") || strings.HasPrefix(part.Path, p) {
				t.Errorf("%s is in the part %s", p, part.Path)
			}
		}
	}
	for _, part := range r.Parts {
		for _, home := range []string{"/home", "/root", "/etc", "/var/run", "/run"} {
			if part.Path == home || strings.HasPrefix(part.Path, home+"/") || strings.HasPrefix(home, part.Path+"/") {
				t.Errorf("part %s shows %s", part.Path, home)
			}
		}
	}
	for dir, want := range map[string]string{"home": "user", "home/user": "", "root": "", "run": "lock", "dev": "", "proc": "", "sys": "", "opt": "", "srv": ""} {
		ents, err := os.ReadDir(filepath.Join(r.Dir, dir))
		var got []string
		for _, e := range ents {
			got = append(got, e.Name())
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("/%s holds %q, %v; want %q", dir, got, err, want)
		}
	}
	noHostShadow(t, r)
}

// noHostShadow makes sure that no password of the machine is in any file.
func noHostShadow(t *testing.T, r hostimage.Root) {
	t.Helper()
	var hashes []string
	if b, err := os.ReadFile("/etc/shadow"); err == nil {
		for l := range strings.Lines(string(b)) {
			if f := strings.Split(l, ":"); len(f) > 1 && len(f[1]) > 3 {
				hashes = append(hashes, f[1])
			}
		}
	}
	err := filepath.WalkDir(r.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type()&^fs.ModeSymlink != 0 {
			t.Errorf("%s is a %v", p, d.Type())
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(p)
		for _, h := range append(hashes, "PRIVATE KEY-----") {
			if strings.Contains(string(b), h) {
				t.Errorf("%s holds a secret", p)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestThisMachinesProgramsRun(t *testing.T) {
	r := thisMachine(t)
	tests := []struct {
		name string
		argv []string
		want string // part of the output; the exit code must be 0
	}{
		{"shell", []string{"bash", "-lc", "echo $BASH_VERSION; shopt -q login_shell && echo login"}, "login"},
		{"accounts", []string{"id", "user"}, "uid=1000(user) gid=1000(user) groups=1000(user)"},
		{"localhost", []string{"getent", "hosts", "localhost"}, "localhost"},
		{"services", []string{"getent", "services", "https"}, "443/tcp"},
		{"python-trust", []string{"python3", "-c", "import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 50)"}, "True"},
		{"dpkg", []string{"dpkg-query", "-W", "-f=${Status}", "dpkg"}, "install ok installed"},
		{"dpkg-names", []string{"dpkg", "--configure", "-a", "--no-act"}, ""},
		{"alternatives", []string{"awk", "BEGIN { print 1 + 1 }"}, "2"},
		{"perl", []string{"perl", "-MFile::Temp", "-e", "print 40 + 2"}, "42"},
		{"java", []string{"java", "-version"}, "openjdk"},
		{"git", []string{"git", "--version"}, "git version"},
		{"os-release", []string{"sh", "-c", ". /etc/os-release && echo $ID"}, ""},
		{"no-homes", []string{"sh", "-c", "ls -A /home/user /root; ls /home"}, "user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.argv[0]); err != nil {
				t.Skip(err)
			}
			out, err := in(t, r, tt.argv...)
			if err != nil || !strings.Contains(out, tt.want) {
				t.Errorf("%q = %q, %v; want %q", tt.argv, out, err, tt.want)
			}
		})
	}
}

// TestLookUpsFailAtOnce holds a look-up below the resolver's shortest time-out.
func TestLookUpsFailAtOnce(t *testing.T) {
	r := thisMachine(t)
	out, err := in(t, r, "bash", "-c", "TIMEFORMAT=%3R; time getent hosts example.com")
	var took float64
	if _, serr := fmt.Sscan(out, &took); serr != nil || err == nil {
		t.Fatalf("getent = %q, %v; want a failure", out, err)
	}
	if took >= 1 {
		t.Errorf("the look-up took %v s: it waited for an answer", took)
	}
	t.Logf("failed after %v s", took)
}

func TestAudit(t *testing.T) {
	root := machine(t, map[string]string{
		"usr/lib/leak": "-> /home/alice/x", "usr/lib/fine": "-> /usr/bin/sh", "usr/lib/key": "x", "usr/etc/npmrc": "x", "usr/share/ssh_host_rsa_key": "x",
	})
	for _, p := range []string{"usr/lib/key", "usr/etc/npmrc"} {
		if err := os.Chmod(filepath.Join(root, p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := skeleton(t, t.TempDir(), hostimage.Options{HostRoot: root})
	got, err := r.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, n := range got {
		paths = append(paths, n.Path)
	}
	if strings.Join(paths, " ") != "/usr/lib/key /usr/lib/leak /usr/share/ssh_host_rsa_key" {
		t.Errorf("audit = %v", got)
	}
}

// TestThisMachinesPartsHoldNoKnownSecret walks all that an instance would see.
func TestThisMachinesPartsHoldNoKnownSecret(t *testing.T) {
	got, err := thisMachine(t).Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range got {
		if strings.Contains(n.Text, "named like a secret") || strings.Contains(n.Text, "socket") {
			t.Errorf("%s: %s", n.Path, n.Text)
		} else {
			t.Logf("%s: %s", n.Path, n.Text)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		if _, err := hostimage.Skeleton(b.Context(), b.TempDir(), hostimage.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFindAgain(b *testing.B) {
	cache := b.TempDir()
	for b.Loop() {
		if _, err := hostimage.Skeleton(b.Context(), cache, hostimage.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
