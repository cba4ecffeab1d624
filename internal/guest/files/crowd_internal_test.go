package files

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
)

// rawEvent is one of a watch, as the kernel has it.
func rawEvent(wd uint32, name int) []byte {
	b := make([]byte, 16+name)
	binary.NativeEndian.PutUint32(b, wd)
	binary.NativeEndian.PutUint32(b[12:], uint32(name))
	return b
}

// Watches that nobody collects from fill what all may hold together: that ends theirs, and
// takes nothing from one that collects.
func TestStuckWatchesCostOthersNothing(t *testing.T) {
	const stuck, read = 1, 2
	n := &notifier{trees: map[*watchTree]struct{}{}, watches: map[int32][]*watchTree{}}
	add := func(wd int32) *watchTree {
		tree := &watchTree{notifier: n, ready: make(chan struct{}, 1)}
		n.trees[tree] = struct{}{}
		n.watches[wd] = append(n.watches[wd], tree)
		return tree
	}
	for range maxAllQueued / maxQueued {
		add(stuck)
	}
	reader := add(read)
	for range maxQueued / 4096 { // of which nothing is lost
		n.sendLocked(rawEvent(stuck, 4096-16))
	}
	if n.queued != maxAllQueued {
		t.Fatalf("%d bytes wait, want all of %d", n.queued, maxAllQueued)
	}
	for i := range 3 {
		n.sendLocked(rawEvent(read, 4096-16))
		if raw, err := n.take(reader); len(raw) != 4096 || err != nil {
			t.Errorf("event %d: %d bytes, %v", i, len(raw), err)
		}
	}
	failed := 0
	for _, tree := range n.watches[stuck] {
		if _, err := n.take(tree); err != nil {
			failed++
			if !errors.Is(err, errLost) {
				t.Error(err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d watches that were not collected from have ended, want 1", failed)
	}
}

func TestStuckPollersCostOthersNothing(t *testing.T) {
	w := newWatchers()
	open := func() *polled {
		p := &polled{all: w}
		if _, err := w.add(p, func() {}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	large := []*filesystem.FilesystemEvent{{Name: strings.Repeat("x", 1<<20)}}
	var stuck []*polled
	for i := 0; w.bytes.Load()+1<<20 < maxAllBytes; i++ {
		if i%7 == 0 {
			stuck = append(stuck, open())
		}
		if err := stuck[len(stuck)-1].add(large); err != nil {
			t.Fatal(err)
		}
	}
	reader := open()
	for range 10 {
		if err := reader.add(large); err != nil {
			t.Fatalf("one that collects: %v", err)
		}
		reader.mu.Lock()
		if got := reader.takeLocked(); len(got) != 1 {
			t.Errorf("it collects %d events", len(got))
		}
		reader.mu.Unlock()
	}
	failed := 0
	for _, p := range stuck {
		if p.err != nil {
			failed++
			if !errors.Is(p.err, errLost) {
				t.Error(p.err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d of %d that were not collected from have ended, want 1", failed, len(stuck))
	}
}
