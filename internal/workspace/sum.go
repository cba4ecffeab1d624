package workspace

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// Sum identifies a Diff: what it would put into the base, what it would take
// out of it, and what of the base it was compared with. Two Diffs of equal sums
// are applied with the same result.
type Sum struct {
	Digest Digest   // of the whole, the selection included
	Items  []Digest // of each item, in the Diff's order
	Paths  []string // the selection, cleaned and sorted; none means all
}

// sumVersion begins all that is summed, so that another form never has the
// digest of this one.
const sumVersion = "carboy diff 1"

// Sum returns d's sum. It reads nothing: the contents of changes count by their
// digests, and what the base has by its identity, size and change time. Times
// that a sandbox set are left out, as no apply carries them over.
func (d *Diff) Sum() Sum {
	s := Sum{Paths: slices.Clone([]string(d.sel)), Items: make([]Digest, 0, len(d.Items))}
	all := newSummer()
	all.number(uint64(len(s.Paths)))
	for _, p := range s.Paths {
		all.text(p)
	}
	all.number(uint64(len(d.Items)))
	for i := range d.Items {
		one := d.Items[i].sum()
		s.Items = append(s.Items, one)
		all.h.Write(one[:])
	}
	s.Digest = all.sum()
	return s
}

// sum returns the digest of one item.
func (it *Item) sum() Digest {
	s := newSummer()
	for _, text := range [...]string{
		it.Path, string(it.Kind), string(it.Class), it.Target, it.Detail, string(it.Was), it.blocked,
	} {
		s.text(text)
	}
	s.number(uint64(it.Mode))
	s.number(uint64(it.Size))
	s.h.Write(it.Digest[:])
	s.flag(it.entry.torn)
	// Whether attributes name drivers is known only with their content, and
	// follows from it.
	s.flag(it.Held != "" && !it.heldForText)
	s.stamp(it.base)
	s.h.Write(it.tree[:])
	return s.sum()
}

// summer hashes fields, each of which has one form and an end.
type summer struct{ h hash.Hash }

func newSummer() summer {
	s := summer{sha256.New()}
	s.text(sumVersion)
	return s
}

func (s summer) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	s.h.Write(b[:])
}

func (s summer) text(t string) {
	s.number(uint64(len(t)))
	s.h.Write([]byte(t))
}

func (s summer) flag(b bool) {
	n := uint64(0)
	if b {
		n = 1
	}
	s.number(n)
}

// stamp adds what identifies a thing of the base. The change time of a file
// with several names moves with them, and says nothing.
func (s summer) stamp(t stamp) {
	if t.linked {
		t.ctime = 0
	}
	for _, n := range [...]uint64{
		t.dev, t.ino, uint64(t.ctime), uint64(t.mtime), uint64(t.size), uint64(t.mode), uint64(t.uid), uint64(t.gid),
	} {
		s.number(n)
	}
	s.flag(t.linked)
}

func (s summer) sum() (out Digest) {
	s.h.Sum(out[:0])
	return out
}

// treeSum sums what a directory of the base holds, entry by entry, as walk
// meets them.
type treeSum struct{ summer }

func newTreeSum() treeSum { return treeSum{newSummer()} }

func (t treeSum) add(rel string, s stamp) {
	t.text(rel)
	t.stamp(s)
}
