package workspace_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// makeWhole makes a view whole as is done before an apply.
func makeWhole(t *testing.T, view, upper, base string) error {
	t.Helper()
	w := workspace.Whole{View: openDir(t, view), Upper: openDir(t, upper), Base: below(base)}
	if err := w.Make(t.Context()); err != nil {
		return err
	}
	w.Seal = true
	return w.Make(t.Context())
}

// wholeOptions are those of a stream for an apply.
func wholeOptions(paths ...string) workspace.Options {
	o := options(true, future, paths...)
	o.Whole = true
	return o
}

// remount mounts a view once more, as a start does.
func remount(t *testing.T, base, view, upper string) {
	t.Helper()
	must(t, unix.Unmount(view, unix.MNT_DETACH))
	mountView(t, base, view, upper)
}

// renames are what is done to views of renameBase.
var renameBase = tree{
	"src/a": "1", "src/sub/b": "2", "src/sub/c": "3", "src/l": "-> a", "src/x": "x! run", "other/o": "4", "file": "5", "deep/er/z": "6", "empty": "/",
}

var renameCases = []struct {
	name string
	do   func(t *testing.T, view string)
}{
	{"one", func(t *testing.T, v string) { must(t, os.Rename(v+"/src", v+"/lib")) }},
	{"written-to", func(t *testing.T, v string) {
		must(t, os.Rename(v+"/src", v+"/lib"))
		tree{"lib/a": "new", "lib/n": "new", "lib/sub/b": "new"}.write(t, v)
		must(t, os.Remove(v+"/lib/sub/c"))
	}},
	{"nested", func(t *testing.T, v string) {
		must(t, os.Rename(v+"/src/sub", v+"/c"))
		must(t, os.Rename(v+"/src", v+"/d"))
	}},
	{"in-and-out", func(t *testing.T, v string) {
		must(t, os.Rename(v+"/src/sub", v+"/src/s"))
		must(t, os.Rename(v+"/src", v+"/lib"))
		must(t, os.Rename(v+"/lib/s", v+"/other/t"))
		must(t, os.Rename(v+"/deep/er", v+"/lib/er"))
	}},
	{"exchanged", func(t *testing.T, v string) { exchange(t, v+"/src", v+"/other") }},
	{"exchanged-with-a-file", func(t *testing.T, v string) { exchange(t, v+"/src", v+"/file") }},
	{"over-an-empty-one", func(t *testing.T, v string) { must(t, unix.Rename(v+"/src", v+"/empty")) }},
	{"there-and-back", func(t *testing.T, v string) {
		must(t, os.Rename(v+"/src", v+"/lib"))
		tree{"lib/a": "new"}.write(t, v)
		must(t, os.Rename(v+"/lib", v+"/src"))
	}},
	{"deleted-after", func(t *testing.T, v string) {
		must(t, os.Rename(v+"/src", v+"/lib"))
		must(t, os.RemoveAll(v+"/lib"))
	}},
	{"into-a-new-one", func(t *testing.T, v string) {
		must(t, os.Mkdir(v+"/new", 0o755))
		must(t, os.Rename(v+"/src", v+"/new/src"))
		must(t, os.Rename(v+"/other", v+"/new/other"))
	}},
	{"in-a-renamed-one", func(t *testing.T, v string) {
		must(t, os.Rename(v+"/src", v+"/lib"))
		must(t, os.Rename(v+"/other", v+"/lib/other"))
		must(t, os.Rename(v+"/lib/sub", v+"/lib/bus"))
	}},
}

// A view that was made whole shows what it showed, and goes on to when an apply has taken what was renamed
// from its old path, and the view is mounted again. A second look finds no change.
func TestWhole(t *testing.T) {
	for _, tt := range renameCases {
		t.Run(tt.name, func(t *testing.T) {
			privateMounts(t)
			base := t.TempDir()
			mount(t, "none", base, "tmpfs", "")
			renameBase.write(t, base)
			view, upper := overlay(t, base)
			tt.do(t, view)
			was := read(t, view)
			shown := letters(compare(t, base, streamOver(t, upper, base, options(true, future))).Items)

			// The negative control: a stream for an apply is refused before.
			err := workspace.WriteChanges(t.Context(), &bytes.Buffer{}, workspace.OverlayUpper(openDir(t, upper), below(base), nil), wholeOptions())
			loose := errors.Is(err, workspace.ErrLoose)
			if loose != (err != nil) || loose == (tt.name == "there-and-back" || tt.name == "deleted-after") {
				t.Errorf("loose %t, the stream says %v", loose, err)
			}

			must(t, makeWhole(t, view, upper, base))
			diff(t, "view made whole", read(t, view), was)
			s := streamOver(t, upper, base, wholeOptions())
			diff(t, "changes", letters(compare(t, base, s).Items), shown)
			_, err = apply(t, base, s, workspace.ApplyOptions{})
			must(t, err)
			diff(t, "base", read(t, base), was)
			remount(t, base, view, upper)
			diff(t, "view mounted again", read(t, view), was)
			again := compare(t, base, streamOver(t, upper, base, wholeOptions()))
			diff(t, "changes afterwards", letters(again.Items), []string{})
		})
	}
}

// A view whose disk has no room for what was renamed says so, and stays as it was.
func TestWholeNoRoom(t *testing.T) {
	privateMounts(t)
	base, small := t.TempDir(), t.TempDir()
	tree{"src/a": string(bytes.Repeat([]byte("x"), 3<<20))}.write(t, base)
	mount(t, "none", small, "tmpfs", "size=3m")
	view, upper := overlayOn(t, base, small)
	must(t, os.Rename(view+"/src", view+"/lib"))
	before := read(t, upper)
	err := makeWhole(t, view, upper, base)
	if sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("%v, want an error of its kind", err)
	}
	diff(t, "upper layer", read(t, upper), before)
	must(t, unix.Mount("", small, "", unix.MS_REMOUNT, "size=16m"))
	must(t, makeWhole(t, view, upper, base)) // the control
}

// What is whole keeps its times, its mode and its owner.
func TestWholeKeepsAttributes(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{"src/a": "1", "src/sub/b": "2", "src/l": "-> a"}.write(t, base)
	must(t, os.Chown(base+"/src/a", 12, 34))
	must(t, os.Chmod(base+"/src/a", os.ModeSetuid|0o751))
	for _, p := range []string{"src/a", "src/l", "src/sub", "src/sub/b", "src"} {
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(base, p), []unix.Timespec{{Sec: 1}, {Sec: 86400, Nsec: 17}}, unix.AT_SYMLINK_NOFOLLOW))
	}
	view, upper := overlay(t, base)
	must(t, os.Rename(view+"/src", view+"/lib"))
	must(t, makeWhole(t, view, upper, base))
	for _, p := range []string{"a", "l", "sub", "sub/b", "."} {
		var was, is unix.Stat_t
		must(t, unix.Lstat(filepath.Join(base, "src", p), &was))
		must(t, unix.Lstat(filepath.Join(upper, "lib", p), &is))
		if was.Mode != is.Mode || was.Uid != is.Uid || was.Gid != is.Gid || was.Mtim != is.Mtim {
			t.Errorf("%s: %o %d:%d %v, want %o %d:%d %v", p, is.Mode, is.Uid, is.Gid, is.Mtim, was.Mode, was.Uid, was.Gid, was.Mtim)
		}
	}
}

// BenchmarkWhole10k is how long it takes to make a directory of 10,000 files of 2 KiB whole, on a disk image as
// sandboxes have it.
func BenchmarkWhole10k(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the benchmark
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		b.Skip(err)
	}
	base := b.TempDir()
	for i := range 10_000 {
		dir := fmt.Sprintf("%s/src/%d", base, i/100)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(fmt.Sprintf("%s/%d", dir, i), make([]byte, 2<<10), 0o644)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		wholeOnce(b, base)
	}
}

func wholeOnce(b *testing.B, base string) {
	b.StopTimer()
	dir := b.TempDir()
	image := dir + "/image"
	for _, do := range [][]string{
		{"mount", "--make-rprivate", "/"},
		{"truncate", "-s", "1G", image},
		{"mkfs.ext4", "-q", image},
		{"mkdir", dir + "/d"},
		{"mount", "-o", "loop", image, dir + "/d"},
		{"mkdir", dir + "/d/u", dir + "/d/w", dir + "/m"},
		{"mount", "-t", "overlay", "overlay", "-o", fmt.Sprintf("lowerdir=%s,upperdir=%s/d/u,workdir=%s/d/w,redirect_dir=on,metacopy=off,index=off", base, dir, dir), dir + "/m"},
		{"perl", "-e", fmt.Sprintf(`rename("%s/m/src", "%s/m/lib") or die $!`, dir, dir)},
	} {
		if out, err := exec.Command(do[0], do[1:]...).CombinedOutput(); err != nil {
			b.Skipf("%q: %v: %s", do, err, out)
		}
	}
	view, err := os.Open(dir + "/m")
	upper, uerr := os.Open(dir + "/d/u")
	if err := errors.Join(err, uerr); err != nil {
		b.Fatal(err)
	}
	w := workspace.Whole{View: view, Upper: upper, Base: below(base)}
	b.StartTimer()
	err = w.Make(b.Context())
	w.Seal = true
	again := time.Now()
	err = errors.Join(err, w.Make(b.Context()))
	b.ReportMetric(float64(time.Since(again).Milliseconds()), "ms-sealing/op")
	b.StopTimer()
	view.Close()
	upper.Close()
	err = errors.Join(err, unix.Unmount(dir+"/m", 0), unix.Unmount(dir+"/d", 0))
	if err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
}
