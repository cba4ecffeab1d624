package hold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
)

// serveIn has the test's own program serve a directory, so that it can be killed.
const serveIn = "CARBOY_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveIn); dir != "" {
		if err := hold.Serve(dir, func() error { _, err := fmt.Println("ready"); return err }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// mortal is a process that holds images, and what one who watches it sees.
type mortal struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	stop  context.CancelFunc
	held  chan []hold.Held
	shown chan []hold.Shown
}

// serve starts a process for a world, and watches it.
func (w *world) serve(dir string) *mortal {
	w.t.Helper()
	m := &mortal{t: w.t, dir: dir, held: make(chan []hold.Held, 1000), shown: make(chan []hold.Shown, 1000)}
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env, m.cmd.Stderr = append(os.Environ(), serveIn+"="+dir), os.Stderr
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 100))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = hold.Watch(ctx, dir, func(h []hold.Held, s []hold.Shown) { m.held <- h; m.shown <- s })
	}()
	w.t.Cleanup(func() {
		m.stop()
		<-watched
		_ = m.cmd.Wait()
	})
	return m
}

// sees waits until what is shown is as wanted.
func (m *mortal) sees(want func([]hold.Shown) bool) []hold.Shown {
	m.t.Helper()
	for {
		select {
		case s := <-m.shown:
			if want(s) {
				return s
			}
		case <-m.t.Context().Done():
			m.t.Fatal("it was not seen")
		}
	}
}

func (m *mortal) kill() {
	m.t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		m.t.Fatal(err)
	}
	_, _ = m.cmd.Process.Wait()
}

// shows a file by the process at dir.
func (w *world) showAt(dir, label string, size int64) *os.File {
	w.t.Helper()
	image, err := os.OpenFile(filepath.Join(w.at, label), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = image.Truncate(size)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer image.Close()
	if err := unix.Flock(int(image.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		w.t.Fatal(err)
	}
	shown, err := hold.Show(w.t.Context(), dir, label, image)
	if err != nil {
		w.t.Fatal(err)
	}
	return shown
}

func one(s []hold.Shown) bool  { return len(s) == 1 && !s[0].Dead }
func dead(s []hold.Shown) bool { return len(s) == 1 && s[0].Dead }
func none(s []hold.Shown) bool { return len(s) == 0 }

// asksAgain skips a test on a kernel that does not ask another process again.
func asksAgain(t *testing.T) {
	t.Helper()
	var u unix.Utsname
	var major, minor int
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major < 6 || major == 6 && minor < 9 {
		t.Skip("needs a kernel of version 6.9")
	}
}

// Where a process is killed, another goes on with what the first was asked: nobody sees more than a pause.
func TestKeeper(t *testing.T) {
	asksAgain(t)
	w := newWorld(t)
	dir := t.TempDir()
	m := w.serve(dir)
	f := w.showAt(dir, "it", 32<<20)
	defer f.Close()
	k := hold.NewKeeper(dir)
	defer k.Close()
	wrote := make(chan error, 1)
	const rounds = 20
	for round := range rounds {
		if err := k.Follow(t.Context(), m.sees(one)); err != nil {
			t.Fatal(err)
		}
		begun := make(chan struct{})
		go func() {
			close(begun)
			for n := range 24 {
				if _, err := f.WriteAt(pattern(byte(round+n)), int64(n)*block); err != nil {
					wrote <- fmt.Errorf("block %d: %w", n, err)
					return
				}
			}
			wrote <- f.Sync()
		}()
		<-begun
		m.kill()
		m = w.serve(dir)
		if err := k.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		raw, err := os.ReadFile(filepath.Join(w.at, "it"))
		if err != nil {
			t.Fatal(err)
		}
		for n := range 24 {
			if !bytes.Equal(raw[n*block:(n+1)*block], pattern(byte(round+n))) {
				t.Fatalf("round %d: block %d holds something else", round, n)
			}
		}
	}
	if other, err := os.Open(filepath.Join(w.at, "it")); err != nil || !errors.Is(unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		t.Errorf("the image has no lock any more, %v", err)
	} else {
		other.Close()
	}
	f.Close()
	m.sees(none)
}

// What was held when a process was killed is held by the next, until there is room.
func TestKeeperHeld(t *testing.T) {
	asksAgain(t)
	w := newWorld(t)
	dir := t.TempDir()
	m := w.serve(dir)
	f := w.showAt(dir, "it", 32<<20)
	defer f.Close()
	k := hold.NewKeeper(dir)
	defer k.Close()
	if err := k.Follow(t.Context(), m.sees(one)); err != nil {
		t.Fatal(err)
	}
	free := w.fill()
	wrote := make(chan error, 1)
	go func() {
		_, err := f.WriteAt(pattern(2), 8<<20)
		wrote <- err
	}()
	for len(<-m.held) == 0 {
	}
	m.kill()
	m = w.serve(dir)
	if err := k.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(<-m.held) == 0 {
	}
	free()
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// Where nobody kept an image it is dead, which the next process says until it is shown again or dropped.
func TestDead(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	m := w.serve(dir)
	f := w.showAt(dir, "it", 1<<20)
	m.sees(one)
	m.kill()
	if _, err := f.WriteAt([]byte("lost"), 0); err == nil {
		t.Error("a write that nobody did succeeded")
	}
	f.Close()
	m = w.serve(dir)
	if s := m.sees(dead); s[0].Label != "it" {
		t.Errorf("dead is %+v", s)
	}
	f = w.showAt(dir, "it", 1<<20)
	m.sees(one)
	m.kill()
	f.Close()
	m = w.serve(dir)
	m.sees(dead)
	if err := hold.Drop(t.Context(), dir, "it"); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m = w.serve(dir)
	m.sees(none)
}

// An image that was shown again has another connection than before, which is kept instead, and
// a former one that somebody has does not stand for it.
func TestKeeperShownAgain(t *testing.T) {
	asksAgain(t)
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprintf("followed=%v", follows), func(t *testing.T) {
			w := newWorld(t)
			dir := t.TempDir()
			m := w.serve(dir)
			f := w.showAt(dir, "it", 1<<20)
			k := hold.NewKeeper(dir)
			defer k.Close()
			first := m.sees(one)
			if err := k.Follow(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			f.Close()
			m.sees(none) // which the keeper is not told
			f = w.showAt(dir, "it", 1<<20)
			defer f.Close()
			again := m.sees(one)
			if again[0].ID == first[0].ID {
				t.Errorf("both times it is %+v", again[0])
			}
			if follows {
				if err := k.Follow(t.Context(), again); err != nil {
					t.Fatal(err)
				}
			}
			m.kill()
			m = w.serve(dir)
			err := k.Restore(t.Context())
			if !follows {
				if err == nil {
					t.Error("a former connection was taken for the last")
				}
				m.sees(dead)
				return
			}
			if _, werr := f.WriteAt(pattern(1), 0); err != nil || werr != nil {
				t.Errorf("restored: %v, written: %v", err, werr)
			}
		})
	}
}
