package hostdir_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/hostdir"
)

const stranger = 4242 // a uid and gid that own nothing here

// tree makes directories that everyone may enter.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for d := root; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func mkdir(t *testing.T, path string, uid int, mode os.FileMode) string {
	t.Helper()
	if err := os.Mkdir(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to take another user's rights")
	}
	root := tree(t)
	mine := mkdir(t, filepath.Join(root, "mine"), stranger, 0o700)
	readOnly := mkdir(t, filepath.Join(root, "read-only"), stranger, 0o500)
	theirs := mkdir(t, filepath.Join(root, "theirs"), 0, 0o755)
	secret := mkdir(t, filepath.Join(root, "secret"), 0, 0o700)
	inSecret := mkdir(t, filepath.Join(secret, "mine"), stranger, 0o777)
	state := mkdir(t, filepath.Join(mine, "state"), stranger, 0o700)
	allowed := mkdir(t, filepath.Join(root, "allowed"), stranger, 0o755)
	link := filepath.Join(allowed, "out")
	for old, name := range map[string]string{
		mine: link, "/etc": filepath.Join(allowed, "etc"), secret: filepath.Join(allowed, "secret"),
	} {
		if err := os.Symlink(old, name); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	user := &hostdir.Identity{UID: stranger, GID: stranger}
	below := []string{allowed}
	tests := []struct {
		name  string
		rules hostdir.Rules
		path  string
		write bool
		want  sandbox.Kind
	}{
		{"own", hostdir.Rules{As: user}, mine, true, ""},
		{"own-for-root", hostdir.Rules{}, mine, true, ""},
		{"own-read-only", hostdir.Rules{As: user}, readOnly, false, ""},
		{"write-to-read-only", hostdir.Rules{As: user}, readOnly, true, sandbox.Denied},
		{"write-to-read-only-for-root", hostdir.Rules{As: &hostdir.Identity{}}, readOnly, true, ""},
		{"readable-but-anothers", hostdir.Rules{As: user}, theirs, false, sandbox.Denied},
		{"unreadable", hostdir.Rules{As: user}, secret, false, sandbox.Denied},
		{"own-behind-unreadable", hostdir.Rules{As: user}, inSecret, false, sandbox.Denied},
		{"link-to-unreadable", hostdir.Rules{As: user}, filepath.Join(allowed, "secret"), false, sandbox.Denied},
		{"missing", hostdir.Rules{As: user}, filepath.Join(root, "none"), false, sandbox.NotFound},
		{"file", hostdir.Rules{As: user}, file, false, sandbox.Invalid},
		{"relative", hostdir.Rules{As: user}, "mine", false, sandbox.Invalid},
		{"empty", hostdir.Rules{}, "", false, sandbox.Invalid},
		{"nul", hostdir.Rules{}, "/tmp\x00x", false, sandbox.Invalid},
		{"root-directory", hostdir.Rules{}, "/", false, sandbox.Denied},
		{"system", hostdir.Rules{}, "/etc", false, sandbox.Denied},
		{"below-system", hostdir.Rules{}, "/usr/share", false, sandbox.Denied},
		{"holds-system", hostdir.Rules{}, "/var", false, sandbox.Denied},
		{"all-homes", hostdir.Rules{}, "/home", false, sandbox.Denied},
		{"sources-as-a-whole", hostdir.Rules{}, "/usr/src", false, sandbox.Denied},
		{"link-to-system", hostdir.Rules{Below: below}, filepath.Join(allowed, "etc"), false, sandbox.Denied},
		{"the-daemons-own", hostdir.Rules{Deny: []string{state}}, state, false, sandbox.Denied},
		{"holds-the-daemons-own", hostdir.Rules{Deny: []string{state}}, mine, false, sandbox.Denied},
		{"allowed", hostdir.Rules{Below: below}, allowed, false, ""},
		{"nothing-allowed", hostdir.Rules{Below: []string{}}, allowed, false, sandbox.Denied},
		{"beside-allowed", hostdir.Rules{Below: below}, mine, false, sandbox.Denied},
		{"link-out-of-allowed", hostdir.Rules{Below: below}, link, false, sandbox.Denied},
		{"dots-out-of-allowed", hostdir.Rules{Below: below}, allowed + "/../mine", false, sandbox.Denied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := hostdir.Open(tt.rules, tt.path, tt.write)
			if sandbox.KindOf(err) != tt.want {
				t.Fatalf("Open = %v, want kind %q", err, tt.want)
			}
			if err == nil && (got.Path != tt.path || got.Ino == 0) {
				t.Errorf("Open = %+v, want path %s", got, tt.path)
			}
		})
	}
}

// A caller without rights of its own learns nothing of a path, and what it may
// not name is not opened. The same names are told apart for a user.
func TestBlind(t *testing.T) {
	root := tree(t)
	allowed := mkdir(t, filepath.Join(root, "allowed"), os.Getuid(), 0o755)
	outside := mkdir(t, filepath.Join(root, "outside"), os.Getuid(), 0o755)
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"file": file, "out": outside, "etc": "/etc", "none": root + "/none"} {
		if err := os.Symlink(to, filepath.Join(allowed, name)); err != nil {
			t.Fatal(err)
		}
	}
	below := []string{allowed}
	tests := []struct {
		name  string
		below []string
		paths []string // all with the same answer, but for the path itself
	}{
		{"no-paths", nil, []string{allowed, outside, file, root + "/none", file + "/x", "/etc", "/"}},
		{"written-elsewhere", below, []string{outside, file, root + "/none", "/etc/shadow", allowed + "/../outside", allowed + "/../none", allowed + "x"}},
		{"below", below, []string{allowed + "/file", allowed + "/out", allowed + "/etc", allowed + "/none", allowed + "/absent", allowed + "/out/../out"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var answers, told []string
			for _, p := range tt.paths {
				_, err := hostdir.Open(hostdir.Rules{Below: tt.below, Blind: true}, p, false)
				answers = append(answers, answer(err, p))
				_, err = hostdir.Open(hostdir.Rules{Below: tt.below}, p, false)
				told = append(told, answer(err, p))
			}
			if got := slices.Compact(answers); len(got) != 1 || !strings.HasPrefix(got[0], string(sandbox.Denied)) {
				t.Errorf("answers = %q, want one, denied", got)
			}
			if slices.Sort(told); len(slices.Compact(told)) < 2 {
				t.Errorf("to a user: %q, want several", told)
			}
		})
	}
	if dir, err := hostdir.Open(hostdir.Rules{Below: below, Blind: true}, allowed+"/", true); err != nil || dir.Path != allowed {
		t.Errorf("Open of what may be named = %+v, %v", dir, err)
	}
	opened := watch(t, outside)
	for _, below := range [][]string{nil, below} {
		for _, p := range []string{outside, allowed + "/../outside"} {
			if _, err := hostdir.Open(hostdir.Rules{Below: below, Blind: true}, p, false); err == nil || opened() {
				t.Errorf("Open of %s below %q = %v, or it was opened", p, below, err)
			}
		}
	}
	if _, err := hostdir.Open(hostdir.Rules{}, outside, false); err != nil || !opened() {
		t.Errorf("Open by a user = %v, or it was not seen", err)
	}
}

// answer is what a caller reads, without the path and what follows from it.
func answer(err error, path string) string {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok {
		return "none"
	}
	return strings.ReplaceAll(strings.Join([]string{string(e.Kind), e.Msg, e.Hint}, "|"), strconv.Quote(filepath.Clean(path)), "PATH")
}

// watch returns whether dir was opened since it was last called.
func watch(t *testing.T, dir string) func() bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		return err == nil && n > 0
	}
}

// The thread that took another identity must not serve anything else.
func TestOpenLeavesNoRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to take another user's rights")
	}
	root := tree(t)
	mine := mkdir(t, filepath.Join(root, "mine"), stranger, 0o700)
	secret := mkdir(t, filepath.Join(root, "secret"), 0, 0o700)
	for range 50 {
		if _, err := hostdir.Open(hostdir.Rules{As: &hostdir.Identity{UID: stranger, GID: stranger}}, mine, false); err != nil {
			t.Fatal(err)
		}
		if _, err := os.ReadDir(secret); err != nil {
			t.Fatalf("this process lost its rights: %v", err)
		}
	}
}

func TestPeer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := hostdir.Peer(s.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if int(got.UID) != os.Getuid() || int(got.GID) != os.Getgid() || len(got.Groups) != len(groups) {
		t.Errorf("Peer = %+v, want uid %d, gid %d, %d groups", got, os.Getuid(), os.Getgid(), len(groups))
	}
}

// TestMachineDirs holds that no sandbox is given a directory whose links the
// command line follows, nor one that holds it.
func TestMachineDirs(t *testing.T) {
	for _, dir := range beneath.MachineDirs() {
		for ; ; dir = filepath.Dir(dir) {
			if got, err := hostdir.Open(hostdir.Rules{}, dir, false); err == nil {
				t.Errorf("%s is given as %+v", dir, got)
			}
			if dir == "/" {
				break
			}
		}
	}
}

// TestOpenFile: what is read for a caller is what the caller may read, and a plain file.
func TestOpenFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to take another user's rights")
	}
	root := tree(t)
	write := func(name string, mode os.FileMode, uid int) string {
		p := filepath.Join(root, name)
		if err := errors.Join(os.WriteFile(p, []byte(name), 0o600), os.Chmod(p, mode), os.Chown(p, uid, uid)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	secret, mine := write("secret", 0o600, 0), write("mine", 0o600, stranger)
	pipe := filepath.Join(root, "pipe")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o644), os.Symlink(secret, filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	shut := filepath.Join(root, "shut")
	must := errors.Join(os.Mkdir(shut, 0o700), os.WriteFile(filepath.Join(shut, "open"), nil, 0o644))
	held, err := os.Open(filepath.Join(shut, "open"))
	if err := errors.Join(must, err); err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	them := hostdir.Rules{As: &hostdir.Identity{UID: stranger, GID: stranger}}
	for _, tt := range []struct {
		name, path string
		rules      hostdir.Rules
		want       sandbox.Kind
	}{
		{"own", mine, them, ""},
		{"another's", secret, them, sandbox.Denied},
		{"another's by a link", filepath.Join(root, "link"), them, sandbox.Denied},
		{"another's, for root", secret, hostdir.Rules{}, ""},
		{"in a directory that is shut", held.Name(), them, sandbox.Denied},
		{"which the daemon has open", fmt.Sprintf("/proc/self/fd/%d", held.Fd()), them, sandbox.Invalid},
		{"a pipe", pipe, them, sandbox.Invalid},
		{"a directory", root, them, sandbox.Invalid},
		{"nothing", root + "/no", them, sandbox.NotFound},
		{"relative", "mine", them, sandbox.Invalid},
		{"a key", mine, hostdir.Rules{Blind: true}, sandbox.Denied},
	} {
		f, err := hostdir.OpenFile(tt.rules, tt.path)
		if tt.want == "" && err != nil || tt.want != "" && sandbox.KindOf(err) != tt.want {
			t.Errorf("%s: %v, want kind %q", tt.name, err, tt.want)
		}
		if err == nil {
			_ = f.Close() // it was only opened
		}
	}
}
