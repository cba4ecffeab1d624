// Package program carries the programs that carboy is made of inside the one file that
// people install: compressed, and unpacked once for each version, below the state
// directory.
//
// What is executed is a descriptor, never a name: of a file that nobody else can write
// to or replace, whose content was read through that descriptor and has the digest that
// this binary was built with. A file that is cut off, changed, or another's is not
// executed but unpacked anew. Where none can be kept, as on a full disk, or executed, as
// on one that is mounted noexec, the programs are sealed files in memory.
//
// The programs are packed before, by make, into this package's bin directory, and those
// that are built to be weak into weakbin. A build without them works, and Open then says
// what to do.
package program

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// ErrNotBuilt says that the programs were not there when this binary was built.
var ErrNotBuilt = errors.New("the programs are not in this binary: run make build")

// In the directory, as cmd/carboy-pack makes them: the file that says what is packed, a
// line for each with its digest by SHA-256 in hex, its size in bytes and its name; and
// what ends the names of the programs there.
const (
	index  = "index"
	suffix = ".zst"
)

// packed is a program as this binary carries it.
type packed struct {
	name   string
	digest string // of the program, by SHA-256 in hex
	size   int64
	open   func() (io.ReadCloser, error)
}

// carried are the programs in this binary, or ErrNotBuilt.
var carried = sync.OnceValues(func() ([]packed, error) {
	sub, err := fs.Sub(bin, dir)
	if err != nil {
		return nil, err
	}
	return read(sub)
})

// Built reports whether the programs were there when this binary was built.
func Built() bool {
	_, err := fs.Stat(bin, dir+"/"+index)
	return err == nil
}

// read reads the index of a directory of packed programs.
func read(from fs.FS) ([]packed, error) {
	f, err := from.Open(index)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotBuilt
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []packed
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var p packed
		if _, err := fmt.Sscanf(lines.Text(), "%64s %d %s", &p.digest, &p.size, &p.name); err != nil {
			return nil, fmt.Errorf("read the index of the programs: %w", err)
		}
		name := p.name + suffix
		p.open = func() (io.ReadCloser, error) { return from.Open(name) }
		all = append(all, p)
	}
	return all, lines.Err()
}

// fileName is the program's, once it is unpacked.
func (p packed) fileName() string { return p.name + "-" + p.digest }

// isProgram reports whether a name is that of a program of some version.
func isProgram(name string) bool {
	i := strings.LastIndexByte(name, '-')
	return i > 0 && strings.HasPrefix(name, "carboy-") && len(name)-i-1 == 64
}

// unpack writes the program to w.
func (p packed) unpack(w io.Writer) error {
	f, err := p.open()
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer z.Close()
	_, err = io.Copy(w, io.LimitReader(z, p.size+1))
	return err
}
