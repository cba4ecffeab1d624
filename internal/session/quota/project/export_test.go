package project

import (
	"context"
	"crypto/rand"
	"os"
)

// ByDevice is a Control that asks as kernels before 5.14 have it.
func ByDevice() *Control { return &Control{byDevice: true} }

// Begin is Take that dies after the note, or with marked after the marks too.
func Begin(ctx context.Context, dir *os.File, marked bool) (uint32, error) {
	fs, err := new(Control).system(dir)
	if err != nil {
		return 0, err
	}
	n, err := fs.begin(dir, rand.Reader)
	if err == nil && marked {
		err = mark(ctx, dir, n.id, 0)
	}
	return n.id, err
}

// ProjectOf is what an open file bears.
func ProjectOf(f *os.File) (id uint32, inherits bool, err error) {
	a, err := attributes(int(f.Fd()))
	return a.project, a.flags&inherit != 0, err
}

// Move takes an open file into another project.
func Move(f *os.File, id uint32, inherits bool) error {
	a, err := attributes(int(f.Fd()))
	if err != nil {
		return err
	}
	a.project = id
	a.flags &^= inherit
	if inherits {
		a.flags |= inherit
	}
	return setAttributes(int(f.Fd()), a)
}

// NoteName is where the note of a directory is.
const NoteName = noteName

// ReadNote parses a note.
func ReadNote(s string) (id uint32, ino uint64, done, ok bool) {
	n, ok := parseNote(s)
	return n.id, n.ino, n.done, ok
}

// WriteNote makes one.
func WriteNote(id uint32, ino uint64, done bool) string { return note{id, ino, done}.String() }

// Device reads a mountinfo.
var Device = device

// NewID chooses a project.
var NewID = newID

// The projects that are ours.
const First, Span = first, span
