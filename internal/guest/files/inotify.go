package files

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
)

const (
	maxWatches = 1 << 16 // directories of one recursive watcher
	watchMask  = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
		unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

const readDir = os.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NONBLOCK

var errLost = errors.New("events were lost: more happened than was collected in time")

// change is something that happened: name is relative to the watched
// directory, "." for itself.
type change struct {
	name string
	typ  filesystem.EventType
}

// watchTree watches a directory with inotify, and those below it if it is
// recursive. What opens directories runs on a worker, so that only what the
// user may read is watched.
type watchTree struct {
	notifier  *notifier
	root      string
	recursive bool
	ready     chan struct{} // holds a token when there is something to take

	queue []byte // raw events that wait, of the notifier
	err   error  // why no more come, of the notifier

	paths map[int32]string // of each watch, relative to root; "" is root
	wds   map[string]int32
	// found has what was reported of a new directory by looking into it, to
	// leave out the same from the queue. It is cleared when the queue is.
	found map[string]bool
	// left is a directory that was moved out of its place; where it went, if
	// it is still in the tree, is said by the event after.
	left   string
	cookie uint32
}

// newWatchTree returns a tree that watches nothing yet. The caller must close it.
func newWatchTree(n *notifier, root string, recursive bool) (*watchTree, error) {
	t := &watchTree{
		notifier: n, root: root, recursive: recursive, ready: make(chan struct{}, 1),
		paths: make(map[int32]string), wds: make(map[string]int32), found: make(map[string]bool),
	}
	return t, n.join(t)
}

// open starts to watch.
func (t *watchTree) open() error {
	err := t.add("")
	if err == nil && t.recursive {
		_, err = t.descend("", false)
	}
	return err
}

func (t *watchTree) close() { t.notifier.leave(t) }

// wake says that there is something to take.
func (t *watchTree) wake() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

// read waits for events and returns them raw.
func (t *watchTree) read(ctx context.Context) ([]byte, error) {
	for {
		if raw, err := t.notifier.take(t); raw != nil || err != nil {
			return raw, err
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// add watches one directory, which the user must be able to read: gVisor
// does not ask for that by itself. The kernel knows directories, not paths:
// one that is watched already gets its new path.
func (t *watchTree) add(rel string) error {
	if len(t.paths) >= maxWatches {
		return t.tooMany()
	}
	d, err := os.OpenFile(path.Join(t.root, rel), readDir, 0)
	if err != nil {
		return err
	}
	d.Close()
	mask := uint32(watchMask)
	if rel != "" {
		mask |= unix.IN_DONT_FOLLOW
	}
	wd, err := t.notifier.add(t, path.Join(t.root, rel), mask)
	if errors.Is(err, unix.ENOSPC) { // not the disk is full
		return faultf(connect.CodeResourceExhausted,
			"watch %s: the kernel watches no more directories (fs.inotify.max_user_watches)", t.root)
	}
	if err != nil {
		return &os.PathError{Op: "watch", Path: path.Join(t.root, rel), Err: err}
	}
	if old, ok := t.paths[wd]; ok {
		delete(t.wds, old)
	}
	t.paths[wd], t.wds[rel] = rel, wd
	return nil
}

func (t *watchTree) tooMany() error {
	return faultf(connect.CodeResourceExhausted, "watch %s: more than %d directories", t.root, maxWatches)
}

// descend watches the directories below rel. With report, it returns what it
// finds as created, and files that have content as written: that happened
// before the watch was there.
func (t *watchTree) descend(rel string, report bool) ([]change, error) {
	entries, err := t.look(rel, report)
	if err != nil {
		return nil, err
	}
	var out []change
	for _, e := range entries {
		name := path.Join(rel, e.Name())
		if report {
			t.found[name] = true
			out = append(out, change{name, filesystem.EventType_EVENT_TYPE_CREATE})
			if st, err := e.Info(); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
				out = append(out, change{name, filesystem.EventType_EVENT_TYPE_WRITE})
			}
		}
		if !e.IsDir() {
			continue
		}
		more, err := t.enter(name, report)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// look returns what is in rel: all of it, or the directories.
func (t *watchTree) look(rel string, all bool) ([]os.DirEntry, error) {
	d, err := os.OpenFile(path.Join(t.root, rel), readDir, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var out []os.DirEntry
	for {
		entries, err := d.ReadDir(256)
		for _, e := range entries {
			if all || e.IsDir() {
				out = append(out, e)
			}
		}
		switch {
		case all && len(t.found)+len(out) > maxPending:
			return nil, &fault{connect.CodeDataLoss, errLost}
		case len(t.paths)+len(out) > maxWatches+maxPending:
			return nil, t.tooMany()
		case len(entries) == 0 || err != nil:
			return out, nil
		}
	}
}

// enter watches rel and what is below. A directory that the user may not
// read, or that is gone again, is left out.
func (t *watchTree) enter(rel string, report bool) ([]change, error) {
	err := t.add(rel)
	var out []change
	if err == nil {
		out, err = t.descend(rel, report)
	}
	if passable(err) {
		return out, nil
	}
	return out, err
}

// drop forgets the watches of rel and below.
func (t *watchTree) drop(rel string) {
	for p, wd := range t.wds {
		if p == rel || strings.HasPrefix(p, rel+"/") {
			t.notifier.remove(wd, t)
			delete(t.wds, p)
			delete(t.paths, wd)
		}
	}
}

// handle turns raw events into changes and keeps the watches up to date. It
// runs on a worker.
func (t *watchTree) handle(raw []byte) ([]change, error) {
	var out []change
	for size := eventSize(raw); size > 0; size = eventSize(raw) {
		wd := int32(binary.NativeEndian.Uint32(raw))
		mask := binary.NativeEndian.Uint32(raw[4:])
		cookie := binary.NativeEndian.Uint32(raw[8:])
		name := raw[unix.SizeofInotifyEvent:size]
		raw = raw[size:]
		changes, err := t.event(wd, mask, cookie, strings.TrimRight(string(name), "\x00"))
		if err != nil {
			return nil, err
		}
		out = append(out, changes...)
	}
	if t.left != "" && t.notifier.quiet(t) {
		t.settle("")
	}
	if t.notifier.quiet(t) {
		clear(t.found)
	}
	return out, nil
}

// settle ends the wait for where the directory that left went: to, or out of
// the tree. The watches of one that is still in it move along.
func (t *watchTree) settle(to string) {
	from := t.left
	t.left = ""
	if to == "" {
		t.drop(from)
		return
	}
	t.drop(to) // what a rename replaced
	for p, wd := range t.wds {
		if p == from || strings.HasPrefix(p, from+"/") {
			q := to + p[len(from):]
			delete(t.wds, p)
			t.wds[q], t.paths[wd] = wd, q
		}
	}
}

// event handles one event.
func (t *watchTree) event(wd int32, mask, cookie uint32, name string) ([]change, error) {
	dir, ok := t.paths[wd]
	if !ok {
		return nil, nil // of a watch that was dropped
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(t.paths, wd)
		if t.wds[dir] == wd { // else another has its name by now
			delete(t.wds, dir)
		}
		return nil, nil
	}
	if name == "" && dir != "" {
		return nil, nil // the directory above says the same
	}
	rel := path.Join(dir, name)
	if mask&unix.IN_CREATE != 0 && t.found[rel] {
		delete(t.found, rel)
		return nil, nil
	}
	isDir := t.recursive && mask&unix.IN_ISDIR != 0 && name != ""
	moved := isDir && mask&unix.IN_MOVED_TO != 0 && t.left != "" && cookie == t.cookie
	switch {
	case moved:
		t.settle(rel)
	case t.left != "":
		t.settle("")
	}
	var more []change
	var err error
	switch {
	case moved:
	case isDir && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		more, err = t.enter(rel, mask&unix.IN_CREATE != 0)
	case isDir && mask&unix.IN_MOVED_FROM != 0:
		t.left, t.cookie = rel, cookie
	}
	return append(changes(rel, mask), more...), err
}

// changes says what an event means, in the order in which envd would.
func changes(rel string, mask uint32) []change {
	if rel == "" {
		rel = "."
	}
	var out []change
	for _, m := range []struct {
		mask uint32
		typ  filesystem.EventType
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, filesystem.EventType_EVENT_TYPE_CREATE},
		{unix.IN_MOVED_FROM | unix.IN_MOVE_SELF, filesystem.EventType_EVENT_TYPE_RENAME},
		{unix.IN_ATTRIB, filesystem.EventType_EVENT_TYPE_CHMOD},
		{unix.IN_MODIFY, filesystem.EventType_EVENT_TYPE_WRITE},
		{unix.IN_DELETE | unix.IN_DELETE_SELF, filesystem.EventType_EVENT_TYPE_REMOVE},
	} {
		if mask&m.mask != 0 {
			out = append(out, change{rel, m.typ})
		}
	}
	return out
}
