package hold_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// world is a small disk, an image on it, and who holds it.
type world struct {
	t     *testing.T
	at    string // the disk
	dir   string // where the holder is asked
	image string
	told  chan []hold.Held
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if err := hold.Available(); err != nil {
		t.Skipf("needs root and FUSE: %v", err)
	}
	dir := t.TempDir()
	w := &world{t: t, at: filepath.Join(dir, "at"), dir: filepath.Join(dir, "disks"), told: make(chan []hold.Held, 100)}
	w.image = filepath.Join(w.at, "image")
	for _, d := range []string{w.at, w.dir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	disk := filepath.Join(dir, "disk")
	for _, argv := range [][]string{{"mkfs.ext4", "-F", "-q", "-m", "0", disk, "64m"}, {"mount", "-o", "loop", disk, w.at}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs mkfs.ext4 and loop devices: %q: %v\n%s", argv, err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(w.at, unix.MNT_DETACH) })
	served, ready := make(chan error, 1), make(chan struct{})
	go func() { served <- hold.Serve(w.dir, func() error { close(ready); return nil }) }()
	<-ready
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- hold.Watch(ctx, w.dir, func(h []hold.Held, _ []hold.Shown) { w.told <- h }) }()
	<-w.told
	t.Cleanup(func() {
		cancel()
		<-watched
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return w
}

// show makes an image of a size and returns the file that stands for it.
func (w *world) show(size int64) *os.File {
	w.t.Helper()
	f, err := os.Create(w.image)
	if err == nil {
		defer f.Close()
		err = f.Truncate(size)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	shown, err := hold.Show(w.t.Context(), w.dir, "it", f)
	if err != nil {
		w.t.Fatal(err)
	}
	return shown
}

// fill takes all room of the disk.
func (w *world) fill() (free func()) {
	w.t.Helper()
	name := filepath.Join(w.at, "filler")
	if err := os.WriteFile(name, make([]byte, 80<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		w.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			w.t.Error(err)
		}
	}
}

// awaitHeld waits until something is held, or nothing is.
func (w *world) awaitHeld(want bool) (held []hold.Held) {
	w.t.Helper()
	late := time.After(patience.For(20 * time.Second))
	for {
		select {
		case held = <-w.told:
			if len(held) > 0 == want {
				return held
			}
		case <-late:
			w.t.Fatalf("held is not %v", want)
		}
	}
}

const block = 1 << 20

func pattern(n byte) []byte { return bytes.Repeat([]byte{n}, block) }

// A write that finds the disk full waits until it is not, and is then what was written; one
// to blocks that are there already does not wait, and neither does a read.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	f := w.show(32 << 20)
	defer f.Close()
	if _, err := f.WriteAt(pattern(1), 0); err != nil {
		t.Fatal(err)
	}
	free := w.fill()
	wrote := make(chan error, 1)
	go func() {
		_, err := f.WriteAt(pattern(2), 8<<20)
		wrote <- err
	}()
	held := w.awaitHeld(true)
	if held[0].Label != "it" || held[0].Need < block {
		t.Errorf("held: %+v", held)
	}
	if _, err := f.WriteAt(pattern(3), 0); err != nil {
		t.Errorf("write again, with the disk full: %v", err)
	}
	got := make([]byte, block)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, pattern(3)) {
		t.Errorf("read, with the disk full: %v", err)
	}
	select {
	case err := <-wrote:
		t.Fatalf("a write ended on a full disk: %v", err)
	default:
	}
	free()
	if err := <-wrote; err != nil {
		t.Errorf("the write that was held: %v", err)
	}
	w.awaitHeld(false)
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	raw, err := os.ReadFile(w.image)
	if err != nil || !bytes.Equal(raw[8<<20:9<<20], pattern(2)) || !bytes.Equal(raw[:block], pattern(3)) {
		t.Errorf("the image has something else, %v", err)
	}
}

// One that is to be removed fails instead.
func TestDrop(t *testing.T) {
	w := newWorld(t)
	f := w.show(32 << 20)
	defer f.Close()
	free := w.fill()
	defer free()
	wrote := make(chan error, 1)
	go func() {
		_, err := f.WriteAt(pattern(2), 8<<20)
		wrote <- err
	}()
	w.awaitHeld(true)
	if err := hold.Drop(t.Context(), w.dir, "it"); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err == nil {
		t.Error("a write to an image that was given up succeeded")
	}
	w.awaitHeld(false)
}

// What is kept free can be had for a stop, in part, and for nothing else.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	f := w.show(48 << 20)
	defer f.Close()
	room, err := hold.RoomAt(w.at)
	if err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(w.at, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	if err := unix.Fallocate(int(filler.Fd()), 0, 0, room.Spare()); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := f.WriteAt(pattern(2), 0)
		wrote <- err
	}()
	w.awaitHeld(true)
	if err := hold.Drain(t.Context(), w.dir, "it"); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// Whoever asks for what there is not is told so.
func TestOrders(t *testing.T) {
	w := newWorld(t)
	dir, err := os.Open(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := hold.Show(t.Context(), w.dir, "it", dir); err == nil {
		t.Error("a directory was shown as an image")
	}
	if _, err := hold.Show(t.Context(), w.dir, "", dir); err == nil {
		t.Error("an image without a label was shown")
	}
	if _, err := hold.Show(t.Context(), w.at, "it", dir); !errors.Is(err, hold.ErrNotServed) {
		t.Errorf("where nobody serves: %v", err)
	}
}
