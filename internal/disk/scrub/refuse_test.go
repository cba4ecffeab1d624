package scrub_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk/scrub"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// secretImage is an image with a mark in /run, made without a mount.
func secretImage(t testing.TB) string {
	t.Helper()
	image := format(t, 8)
	secret := filepath.Join(t.TempDir(), "secret")
	check(t, os.WriteFile(secret, []byte("CURRENT-c0ntent"), 0o600))
	for _, c := range []string{"mkdir /run", "mkdir /run/pyro-secrets", "write " + secret + " /run/pyro-secrets/TOKEN", "symlink /link /run", "write " + secret + " /file"} {
		run(t, "debugfs", "-w", "-R", c, image)
	}
	return image
}

func TestScrubRefuses(t *testing.T) {
	cut := func(t *testing.T, image string) { check(t, os.Truncate(image, 4<<20)) }
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, image string)
		paths []string
		want  sandbox.Kind
		says  string
	}{
		"relative":       {paths: []string{"run"}, want: sandbox.Invalid},
		"the-root":       {paths: []string{"/"}, want: sandbox.Invalid},
		"dots":           {paths: []string{"/run/../etc"}, want: sandbox.Invalid},
		"a-link":         {paths: []string{"/link"}, want: sandbox.Invalid, says: "/link is a symbolic link"},
		"through-a-link": {paths: []string{"/link/pyro-secrets"}, want: sandbox.Invalid, says: "/link is a symbolic link"},
		"a-file":         {paths: []string{"/file"}, want: sandbox.Invalid, says: "/file is a file"},
		"six-bytes":      {spoil: func(t *testing.T, image string) { check(t, os.WriteFile(image, []byte("rootfs"), 0o600)) }, want: sandbox.Internal},
		"cut-off":        {spoil: cut, want: sandbox.Internal},
		"not-there":      {spoil: func(t *testing.T, image string) { check(t, os.Remove(image)) }, want: sandbox.NotFound},
		"two-names":      {spoil: func(t *testing.T, image string) { check(t, os.Link(image, image+"2")) }, want: sandbox.Conflict, says: "2 names"},
		"a-link-to-it": {spoil: func(t *testing.T, image string) {
			check(t, os.Rename(image, image+"2"), os.Symlink(image+"2", image))
		}, want: sandbox.Invalid},
		"a-directory": {spoil: func(t *testing.T, image string) { check(t, os.Remove(image), os.Mkdir(image, 0o700)) }},
		"locked": {spoil: func(t *testing.T, image string) {
			f, err := os.Open(image)
			check(t, err)
			t.Cleanup(func() { f.Close() })
			check(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
		}, want: sandbox.Conflict, says: "in use"},
		"mounted":              {spoil: func(t *testing.T, image string) { mount(t, image) }, want: sandbox.Conflict, says: "in use"},
		"attributes-in-inodes": {spoil: func(t *testing.T, image string) { run(t, "debugfs", "-w", "-R", "feature ea_inode", image) }, want: sandbox.Unsupported, says: "0x400"},
		"damaged":              {spoil: func(t *testing.T, image string) { run(t, "debugfs", "-w", "-R", "clri /run", image) }, want: sandbox.Internal, says: "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			image := secretImage(t)
			if tt.spoil != nil {
				tt.spoil(t, image)
			}
			was, _ := os.ReadFile(image)
			err := scrub.Scrub(t.Context(), image, scrub.Options{Paths: tt.paths})
			if err == nil || tt.want != "" && sandbox.KindOf(err) != tt.want || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Fatalf("Scrub = %v, want %s that says %q", err, tt.want, tt.says)
			}
			if now, _ := os.ReadFile(image); string(now) != string(was) {
				t.Error("the image is another")
			}
			if _, err := os.Lstat(scrub.WorkName(image)); err == nil {
				t.Error("a copy was left")
			}
		})
	}
}

// What is written to an image while it is scrubbed, by a program that knows of no lock, is not
// lost: the copy does not take its place.
func TestScrubKeepsWhatIsWritten(t *testing.T) {
	image := secretImage(t)
	written := []byte("written meanwhile")
	at := int64(8<<20) - 100
	err := scrub.Scrub(t.Context(), image, scrub.Options{Progress: func(step string, done, _ uint64) {
		if step == scrub.StepErase && done == 0 {
			f, err := os.OpenFile(image, os.O_WRONLY, 0)
			check(t, err)
			_, err = f.WriteAt(written, at)
			check(t, err, f.Close())
		}
	}})
	if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "was written to meanwhile") {
		t.Errorf("Scrub = %v", err)
	}
	now, err := os.ReadFile(image)
	check(t, err)
	if !bytes.Equal(now[at:at+int64(len(written))], written) {
		t.Error("what was written is gone")
	}
	if _, err := os.Lstat(scrub.WorkName(image)); err == nil {
		t.Error("a copy was left")
	}
}

// TestKilledScrub: wherever a scrub is killed, the image is that of before or the scrubbed
// one, and the next scrub ends what it began.
func TestKilledScrub(t *testing.T) {
	if step := os.Getenv("SCRUB_KILLED_AT"); step != "" {
		_ = scrub.Scrub(t.Context(), os.Getenv("SCRUB_IMAGE"), scrub.Options{Progress: func(now string, _, _ uint64) {
			if now == step {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}})
		return
	}
	for _, step := range []string{
		scrub.StepCopy, scrub.StepReplay, scrub.StepRemove, scrub.StepSettle, scrub.StepErase, scrub.StepCheck, scrub.StepSwap, "none",
	} {
		t.Run(step, func(t *testing.T) {
			image := secretImage(t)
			was, err := os.ReadFile(image)
			check(t, err)
			cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledScrub$")
			cmd.Env = append(os.Environ(), "SCRUB_KILLED_AT="+step, "SCRUB_IMAGE="+image)
			if out, err := cmd.CombinedOutput(); (err == nil) != (step == "none") {
				t.Fatalf("%v: %s", err, out)
			}
			now, err := os.ReadFile(image)
			check(t, err)
			if old := string(now) == string(was); old != (step != "none") {
				t.Errorf("the image of before: %t", old)
			}
			check(t, scrub.Scrub(t.Context(), image, scrub.Options{}))
			b, err := os.ReadFile(image)
			check(t, err)
			// /file has it too, and stays.
			if strings.Count(string(b), "CURRENT-c0ntent") != 1 {
				t.Error("the content is not erased")
			}
			if list := run(t, "debugfs", "-R", "ls -p /run", image); strings.Contains(list, "pyro") {
				t.Errorf("/run has %s", list)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(image), ".*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestNothingIsFound: neither what is in /run nor what was removed elsewhere is in an image that
// was scrubbed.
func TestNothingIsFound(t *testing.T) {
	image := secretImage(t)
	for _, c := range []string{"rm /file", "symlink /run/s LINKTARGET-fast", "symlink /t LINKTARGET-fast", "rm /t"} {
		run(t, "debugfs", "-w", "-R", c, image)
	}
	f, err := os.OpenFile(image, os.O_WRONLY|os.O_APPEND, 0)
	check(t, err)
	_, err = f.WriteString(strings.Repeat("TAIL-c0ntent", 1000)) // as a file system leaves it that was made smaller
	check(t, err, f.Close())
	if found := standing(t, image); len(found) < 3 {
		t.Fatalf("only %q stand there before", found)
	}
	check(t, scrub.Scrub(t.Context(), image, scrub.Options{}))
	if found := standing(t, image); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

// TestScrubKeepsSparse: what is erased takes no room, and the image keeps its owner and mode.
func TestScrubKeepsSparse(t *testing.T) {
	image := format(t, 512)
	at, unmount := mount(t, image)
	check(t, os.Mkdir(filepath.Join(at, "run"), 0o755), os.WriteFile(filepath.Join(at, "run/big"), make([]byte, 64<<20), 0o600))
	for i := range 64 {
		f, err := os.OpenFile(filepath.Join(at, "run/big"), os.O_WRONLY, 0)
		check(t, err)
		_, err = f.WriteAt([]byte("x"), int64(i)<<20)
		check(t, err, f.Close())
	}
	unmount()
	check(t, os.Chmod(image, 0o604))
	if os.Geteuid() == 0 {
		check(t, os.Chown(image, 12345, 54321))
	}
	var was, now unix.Stat_t
	check(t, unix.Stat(image, &was), scrub.Scrub(t.Context(), image, scrub.Options{}), unix.Stat(image, &now))
	if now.Blocks*512 > 16<<20 || was.Blocks*512 < 64<<20 {
		t.Errorf("it takes %d bytes, and took %d", now.Blocks*512, was.Blocks*512)
	}
	if now.Mode != was.Mode || now.Uid != was.Uid || now.Gid != was.Gid || now.Size != was.Size {
		t.Errorf("it is %o %d:%d of %d bytes, and was %o %d:%d of %d", now.Mode, now.Uid, now.Gid, now.Size, was.Mode, was.Uid, was.Gid, was.Size)
	}
}

// TestOpaque: an emptied directory hides what lies below it in an overlay.
func TestOpaque(t *testing.T) {
	image := format(t, 16)
	at, unmount := mount(t, image)
	for _, d := range []string{"root/upper/run/inside", "lower/run/below", "root/work", "merged"} {
		check(t, os.MkdirAll(filepath.Join(at, d), 0o755))
	}
	check(t, unix.Setxattr(filepath.Join(at, "root/upper/run"), "user.some", []byte("thing"), 0))
	unmount()
	check(t, scrub.Scrub(t.Context(), image, scrub.Options{Paths: []string{"/root/upper/run", "/absent"}, Opaque: true}))
	at, _ = mount(t, image)
	merged := filepath.Join(at, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf("lowerdir=%s/lower,upperdir=%[1]s/root/upper,workdir=%[1]s/root/work", at)); err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, unix.Unmount(merged, 0)) }()
	entries, err := os.ReadDir(filepath.Join(merged, "run"))
	check(t, err)
	if len(entries) > 0 {
		t.Errorf("/run has %v", entries)
	}
}
