package hold

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	socketName = "sock"
	lockName   = "lock"

	maxOrder = 4096 // bytes of an order
	maxLabel = 128
	maxHeld  = 1000 // images that one answer names

	// A process waits so long for the first who needs it, and stays so long after the last.
	firstWait = 10 * time.Second
	idleFor   = 50 * time.Millisecond
)

// Held is an image of which writes wait.
type Held struct {
	Label string    `json:"label"`
	Since time.Time `json:"since"`
	Need  int64     `json:"need"` // bytes that must be freed for it to go on
}

// order is what a client says, one on each connection.
type order struct {
	Do    string `json:"do"` // one of the below
	Label string `json:"label,omitempty"`

	ID     string `json:"id,omitempty"`     // of an image that is to be handed over or taken
	Broken bool   `json:"broken,omitempty"` // of one that is to be taken
}

const (
	doShow  = "show"  // an image, whose descriptor comes along; its file comes back
	doHand  = "hand"  // an image's connection and file come back
	doTake  = "take"  // go on with an image, whose connection and file come along
	doWatch = "watch" // what is held, now and at each change
	doDrop  = "drop"  // give an image up rather than hold it
	doDrain = "drain" // let an image have half of what is kept free
)

// answer is what is said to an order.
type answer struct {
	Error string  `json:"error,omitempty"`
	Held  []Held  `json:"held,omitempty"`
	Shown []Shown `json:"shown,omitempty"`
}

// Shown is an image that a process shows.
type Shown struct {
	Label  string `json:"label"`
	ID     string `json:"id,omitempty"`     // another each time it is shown, whoever goes on with it
	Broken bool   `json:"broken,omitempty"` // the file system in it noted an error
	Dead   bool   `json:"dead,omitempty"`   // a process that was killed showed it, and nobody went on
}

// Server serves images. It has one listener, and ends by itself.
type Server struct {
	work    sync.WaitGroup
	writing atomic.Int64 // bytes that are on their way to a disk

	marks marks

	mu       sync.Mutex
	images   map[*image]struct{}
	dead     map[string]mark // images that nobody shows any more, by their names
	clients  int
	changed  chan struct{} // closed at each change of what is held
	idle     *time.Timer
	listener *net.UnixListener
}

// Serve serves the images of a home, whose directory for that is dir, until nobody needs
// it. ready is called once it does. Where another process serves there, ready is called and
// Serve returns.
func Serve(dir string, ready func() error) error {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	locked, err := lockOrFind(lock, dir)
	if err != nil {
		return err
	}
	if !locked {
		return ready()
	}
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	at, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), socketName)})
	if err != nil {
		return err
	}
	s := &Server{images: map[*image]struct{}{}, marks: marks(dir), dead: marks(dir).read(), changed: make(chan struct{}), listener: l}
	s.idle = time.AfterFunc(firstWait, s.leave)
	if err := ready(); err != nil {
		return err
	}
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			break
		}
		s.count(1)
		s.work.Go(func() {
			defer s.count(-1)
			defer c.Close()
			s.client(c)
		})
	}
	s.work.Wait()
	return nil
}

// lockOrFind takes the lock of a directory, or finds that its owner serves. One that was
// killed has the lock for some time after its connections have ended, and one that starts
// does not serve yet: both are waited for.
func lockOrFind(lock *os.File, dir string) (locked bool, err error) {
	late := time.NewTimer(lockWait)
	defer late.Stop()
	step := time.NewTicker(lockStep)
	defer step.Stop()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return false, fmt.Errorf("lock: %w", err)
		}
		if _, _, err := ask(context.Background(), dir, order{Do: doDrain}); err == nil { // which drains nothing
			return false, nil
		}
		select {
		case <-step.C:
		case <-late.C:
			return false, errors.New("another process has the lock and does not serve")
		}
	}
}

const (
	lockWait = 8 * time.Second
	lockStep = 5 * time.Millisecond
)

// count is of clients. Under mu the timer runs while there is neither one nor an image.
func (s *Server) count(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients += more
	s.tickLocked()
}

func (s *Server) tickLocked() {
	if s.clients == 0 && len(s.images) == 0 {
		s.idle.Reset(idleFor)
	} else {
		s.idle.Stop()
	}
}

// leave ends the process's work, unless somebody came meanwhile.
func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == 0 && len(s.images) == 0 {
		_ = s.listener.Close()
	}
}

func (s *Server) add(im *image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[im] = struct{}{}
	s.marks.set(im.name, mark{im.id, im.label})
	delete(s.dead, im.name)
	s.announceLocked()
	s.tickLocked()
}

func (s *Server) forget(im *image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, im)
	again := false // it was shown again before this ended
	for other := range s.images {
		again = again || other.name == im.name
	}
	if !again {
		s.marks.remove(im.name)
	}
	s.announceLocked()
	s.tickLocked()
}

// wait notes that length bytes of an image wait for room, or don't any more.
func (s *Server) wait(im *image, length int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	im.bytes += length
	if length > 0 {
		if im.waiting++; im.waiting == 1 {
			im.since = time.Now().UnixNano()
			s.announceLocked()
		}
		return
	}
	if im.waiting--; im.waiting == 0 {
		s.announceLocked()
	}
}

func (s *Server) announceLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// now returns what is held and what is shown, and what tells of the next change.
func (s *Server) now() (answer, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Held
	var shown []Shown
	for _, one := range s.dead {
		shown = append(shown, Shown{Label: one.label, ID: one.id, Dead: true})
	}
	for im := range s.images {
		shown = append(shown, Shown{Label: im.label, ID: im.id, Broken: im.broken.Load()})
		if im.waiting == 0 || len(out) == maxHeld {
			continue
		}
		h := Held{Label: im.label, Since: time.Unix(0, im.since)}
		if r, ok := im.room(); ok {
			h.Need = max(r.Reserve+resume+im.bytes-r.Free, 1)
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Held) int { return strings.Compare(a.Label, b.Label) })
	return answer{Held: out, Shown: shown}, s.changed
}

// client answers one order. Of another user's nothing is read.
func (s *Server) client(c *net.UnixConn) {
	if !ours(c) {
		return
	}
	o, files, err := readOrder(c)
	if err == nil {
		err = s.do(c, o, files)
	} else {
		closeAll(files)
	}
	if err != nil {
		_ = reply(c, answer{Error: err.Error()})
	}
}

// ours reports whether the other end is a process of our own user.
func ours(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cerr == nil && err == nil && int(cred.Uid) == os.Geteuid()
}

// do does one order. The files are its own from then on.
func (s *Server) do(c *net.UnixConn, o order, files []*os.File) error {
	switch o.Do {
	case doShow:
		if len(files) != 1 {
			closeAll(files)
			return errors.New("there is no image with it")
		}
		return s.show(c, o.Label, files[0])
	case doTake:
		if err := s.take(o, files); err != nil {
			return err
		}
		return reply(c, answer{})
	}
	closeAll(files)
	switch o.Do {
	case doHand:
		return s.hand(c, o.ID)
	case doWatch:
		return s.watch(c)
	case doDrop, doDrain:
		if o.Do == doDrop {
			s.bury(o.Label)
		}
		s.each(o.Label, func(im *image) {
			if o.Do == doDrain {
				im.draining.Store(true)
				return
			}
			if im.doomed.Store(true); im.waiting > 0 {
				im.close()
			}
		})
		return reply(c, answer{})
	}
	return fmt.Errorf("order %.32q: there is no such", o.Do)
}

// bury forgets the images of a label that nobody shows any more.
func (s *Server) bury(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, of := range s.dead {
		if of.label == label {
			delete(s.dead, name)
			s.marks.remove(name)
		}
	}
}

func (s *Server) each(label string, f func(*image)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for im := range s.images {
		if im.label == label {
			f(im)
		}
	}
}

func (s *Server) show(c *net.UnixConn, label string, f *os.File) error {
	if label == "" || len(label) > maxLabel {
		f.Close()
		return errors.New("a label is missing, or too long")
	}
	im, err := newImage(label, rand.Text(), f, s)
	if err != nil {
		return err
	}
	shown, err := im.show()
	if err != nil {
		im.close()
		return err
	}
	defer shown.Close()
	s.add(im)
	return reply(c, answer{}, shown)
}

// watch tells of what is held until the client leaves.
func (s *Server) watch(c *net.UnixConn) error {
	gone := make(chan struct{})
	s.work.Go(func() {
		defer close(gone)
		_, _ = c.Read(make([]byte, 1)) // it says no more
	})
	for {
		now, changed := s.now()
		if err := reply(c, now); err != nil {
			return nil
		}
		select {
		case <-gone:
			return nil
		case <-changed:
		}
		time.Sleep(tellAtMost) // a writer may stop and go on many times a second
	}
}

// tellAtMost is the least time between two words about what is held.
const tellAtMost = 50 * time.Millisecond

// readOrder reads a line and the descriptors that came with it.
func readOrder(c *net.UnixConn) (o order, files []*os.File, err error) {
	_ = c.SetReadDeadline(time.Now().Add(orderLimit))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	b, files, err := receive(c, maxOrder)
	if err != nil {
		return o, files, err
	}
	return o, files, json.Unmarshal(b, &o)
}

// orderLimit is how long a client may take to say what it wants.
const orderLimit = 10 * time.Second

func reply(c *net.UnixConn, a answer, files ...*os.File) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return send(c, raw, files)
}
