// Package pack reads git's packs and their indices as somebody hostile may have written
// them: their frame, and no object's meaning.
//
// Scan passes a pack on and refuses, before git sees a byte of it, one that is larger
// than it may be, or whose objects are, with or without their deltas; whose counts or
// checksum lie; and a delta whose base does not stand before it in the same pack, so
// that none leads in a circle. CheckIndex refuses an index that is not one of that pack.
// Nothing is allocated by a number that the pack says.
package pack

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // it is git's
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Format is how a repository names its objects.
type Format string

// The formats that git knows.
const (
	SHA1   Format = "sha1"
	SHA256 Format = "sha256"
)

// New returns the hash of a format.
func (f Format) New() hash.Hash {
	if f == SHA256 {
		return sha256.New()
	}
	return sha1.New() //nolint:gosec // it is git's
}

// Size is how many bytes an object's name has.
func (f Format) Size() int { return f.New().Size() }

// Kind is an object's type, as a pack has it.
type Kind uint8

// The types of objects, and a delta by its base's place.
const (
	Commit Kind = 1
	Tree   Kind = 2
	Blob   Kind = 3
	Tag    Kind = 4

	ofsDelta Kind = 6
	refDelta Kind = 7
)

// String is git's word for it.
func (k Kind) String() string {
	switch k {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	}
	return fmt.Sprintf("type %d", uint8(k))
}

// Limits are what a pack may have at most.
type Limits struct {
	Bytes    int64 // the pack itself
	Objects  int64
	Object   int64 // a blob
	Meta     int64 // a commit, a tree or a tag
	Unpacked int64 // all objects together
	Depth    int   // deltas upon deltas
}

// limit returns what an object of a kind may have.
func (l Limits) limit(k Kind) int64 {
	if k == Blob {
		return l.Object
	}
	return min(l.Meta, l.Object)
}

// Pack is what a scan saw.
type Pack struct {
	Format   Format
	Bytes    int64
	Checksum []byte
	Unpacked int64

	entries []entry // by their places
}

// Objects is how many there are.
func (p *Pack) Objects() int { return len(p.entries) }

// entry is an object in a pack.
type entry struct {
	at    int64
	size  int64 // with its deltas applied
	kind  Kind
	depth uint16
	crc   uint32
}

// refused is the error of a pack that is not taken.
func refused(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Denied, "the sandbox's objects: "+format, args...)
}

// Scan copies a pack from r to w, and says what is in it. After an error, what was
// written is of no use.
func Scan(r io.Reader, w io.Writer, f Format, l Limits) (*Pack, error) {
	s := &scanner{tee: newTee(r, w, f, l.Bytes), p: &Pack{Format: f}, limits: l}
	if err := s.scan(); err != nil {
		return nil, s.tee.reason(err)
	}
	return s.p, nil
}

// scanner reads one pack.
type scanner struct {
	tee    *tee
	p      *Pack
	limits Limits
	z      inflater
}

func (s *scanner) scan() error {
	var head [12]byte
	if _, err := io.ReadFull(s.tee, head[:]); err != nil {
		return err
	}
	if !bytes.Equal(head[:4], []byte("PACK")) {
		return refused("what came is no pack")
	}
	if v := binary.BigEndian.Uint32(head[4:]); v != 2 {
		return refused("a pack of version %d, where 2 is known", v)
	}
	count := int64(binary.BigEndian.Uint32(head[8:]))
	if count > s.limits.Objects {
		return refused("%d of them, where %d may be", count, s.limits.Objects)
	}
	for range count {
		if err := s.entry(); err != nil {
			return err
		}
	}
	return s.end()
}

// end reads the checksum, after which nothing may come.
func (s *scanner) end() error {
	want := s.tee.sum()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s.tee, got); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return refused("the pack's checksum is not that of what it holds")
	}
	s.p.Checksum, s.p.Bytes = got, s.tee.at
	switch _, err := s.tee.ReadByte(); {
	case err == nil:
		return refused("more follows the end of the pack")
	case err != io.EOF:
		return err
	}
	return s.tee.flush()
}

// entry reads an object.
func (s *scanner) entry() error {
	e := entry{at: s.tee.at}
	s.tee.startCRC()
	kind, size, err := s.header()
	if err != nil {
		return err
	}
	switch kind {
	case Commit, Tree, Blob, Tag:
		e.kind, e.size = kind, size
		err = s.whole(e)
	case ofsDelta:
		e, err = s.delta(e, size)
	case refDelta:
		err = refused("a delta upon an object that the pack does not hold before it")
	default:
		err = refused("an object of no known type, %d", kind)
	}
	if err != nil {
		return err
	}
	if s.p.Unpacked += e.size; s.p.Unpacked > s.limits.Unpacked {
		return refused("unpacked they have more than the %s that may be", bytesText(s.limits.Unpacked))
	}
	e.crc = s.tee.crc()
	s.p.entries = append(s.p.entries, e)
	return nil
}

// header reads an entry's type, and the size of what is packed in it.
func (s *scanner) header() (Kind, int64, error) {
	b, err := s.tee.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	kind, size := Kind(b>>4&7), uint64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = s.tee.ReadByte(); err != nil {
			return 0, 0, err
		}
		if shift > 53 {
			return 0, 0, refused("an object's size is no number")
		}
		size |= uint64(b&0x7f) << shift
	}
	return kind, int64(size), nil
}

// whole reads an object that is no delta.
func (s *scanner) whole(e entry) error {
	if err := s.sized(e.kind, e.size); err != nil {
		return err
	}
	return s.z.inflate(s.tee, e.size, nil)
}

func (s *scanner) sized(k Kind, size int64) error {
	if limit := s.limits.limit(k); size > limit {
		return refused("a %s of %s, where %s may be", k, bytesText(size), bytesText(limit)).(*sandbox.Error).
			WithHint("--max-object allows a larger one")
	}
	return nil
}

// delta reads a delta upon an object that came before.
func (s *scanner) delta(e entry, size int64) (entry, error) {
	base, err := s.base(e.at)
	if err != nil {
		return e, err
	}
	if e.kind, e.depth = base.kind, base.depth+1; int(e.depth) > s.limits.Depth {
		return e, refused("deltas upon deltas, more than %d", s.limits.Depth)
	}
	if err := s.sized(e.kind, size); err != nil {
		return e, err
	}
	var start [2 * maxVarint]byte
	kept := &prefix{b: start[:0]}
	if err := s.z.inflate(s.tee, size, kept); err != nil {
		return e, err
	}
	from, n := varint(kept.b)
	to, m := varint(kept.b[max(n, 0):])
	if n <= 0 || m <= 0 || from != base.size {
		return e, refused("a broken delta: it is not one of its base")
	}
	e.size = to
	return e, s.sized(e.kind, e.size)
}

// base finds what a delta at a place is made upon.
func (s *scanner) base(at int64) (entry, error) {
	b, err := s.tee.ReadByte()
	if err != nil {
		return entry{}, err
	}
	back := int64(b & 0x7f)
	for b&0x80 != 0 {
		if b, err = s.tee.ReadByte(); err != nil {
			return entry{}, err
		}
		if back > at {
			break
		}
		back = (back+1)<<7 | int64(b&0x7f)
	}
	i, ok := slices.BinarySearchFunc(s.p.entries, at-back, func(e entry, at int64) int {
		switch {
		case e.at < at:
			return -1
		case e.at > at:
			return 1
		}
		return 0
	})
	if !ok || back <= 0 {
		return entry{}, refused("a broken delta: where its base should be, no object begins")
	}
	return s.p.entries[i], nil
}

const maxVarint = 8 // bytes of a size in a delta, 56 bits

// varint reads a size at the start of a delta; n is how long it is, 0 where it is none.
func varint(b []byte) (v int64, n int) {
	for i, c := range b {
		if i == maxVarint {
			return 0, 0
		}
		v |= int64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, 0
}

// bytesText writes a size for people.
func bytesText(n int64) string {
	for _, u := range []struct {
		unit int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.unit {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.unit), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
