package scan

import (
	"bytes"
	"compress/bzip2"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	maxStreams = 64 // of gzip, bzip2 and zstd, within one text
	maxZip     = 10_000
	tryCost    = 1 << 10 // of what may be spent, for a stream of zlib that may be none
)

// opaques are what can't be looked into, by how it begins: bytes anywhere, or a line.
var opaques = []struct {
	begins, what string
	line         bool
}{
	{"\xfd7zXZ\x00", "compressed by xz", false},
	{"7z\xbc\xaf\x27\x1c", "an archive of 7z", false},
	{"Rar!\x1a\x07", "an archive of RAR", false},
	{"\x04\x22\x4d\x18", "compressed by lz4", false},
	{"\x00GITCRYPT\x00", "encrypted by git-crypt", false},
	{"age-encryption.org/v1", "encrypted by age", true},
	{"-----BEGIN AGE ENCRYPTED FILE-----", "encrypted by age", true},
	{"-----BEGIN PGP MESSAGE-----", "encrypted by PGP", true},
	{"Salted__", "encrypted by OpenSSL", true},
	{"$ANSIBLE_VAULT;", "encrypted by Ansible", true},
	{"version https://git-lfs.github.com/spec/", "a pointer of LFS: what it stands for is elsewhere", true},
	{"version https://hawser.github.com/spec/", "a pointer of LFS: what it stands for is elsewhere", true},
}

// all are the places at which s is in text.
func all(text []byte, s string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for at := 0; ; at++ {
			i := bytes.Index(text[at:], []byte(s))
			if i < 0 {
				return
			}
			if at += i; !yield(at) {
				return
			}
		}
	}
}

// beginsLine reports whether only blanks are before a place in its line.
func beginsLine(text []byte, at int) bool {
	before := bytes.TrimRight(text[:at], " \t\r\v\f\xef\xbb\xbf")
	return len(before) == 0 || before[len(before)-1] == '\n'
}

// spoken reports whether a program only speaks of what begins so: it has not much more in
// its escapes.
func spoken(text []byte, at int, by string) bool {
	const most = 24
	if !strings.HasPrefix(by, escapesName) {
		return false
	}
	return len(text)-at < most || bytes.IndexByte(text[at:at+most], '\n') >= 0
}

// streams are formats that say by some bytes that they begin, wherever they do.
var streams = []struct {
	begins, by string
	open       func(text []byte) (io.Reader, error)
	sure       bool // what begins so is none by chance
}{
	{"\x1f\x8b\x08", "gzip", func(text []byte) (io.Reader, error) { return gzip.NewReader(bytes.NewReader(text)) }, false},
	{"BZh", "bzip2", func(text []byte) (io.Reader, error) { return bzip2.NewReader(bytes.NewReader(text)), nil }, false},
	{"\x28\xb5\x2f\xfd", "zstd", func(text []byte) (io.Reader, error) {
		return zstd.NewReader(bytes.NewReader(text), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBudget), zstd.WithDecoderMaxWindow(64<<20))
	}, true},
}

// compressed looks through what is compressed, wherever it begins.
func (s *search) compressed(text []byte, by string, depth int, where place) {
	for _, o := range opaques {
		for at := range all(text, o.begins) {
			if (!o.line || beginsLine(text, at)) && !spoken(text, at, by) {
				s.opaque = o.what
				break
			}
		}
	}
	for _, f := range streams {
		n := 0
		for at := range all(text, f.begins) {
			if spoken(text, at, by) || f.by == "bzip2" && !bytes.HasPrefix(text[min(len(text), at+4):], []byte("1AY&SY")) {
				continue
			}
			if n++; n > maxStreams {
				s.opaque = "it has more that is compressed than can be looked at"
				break
			}
			out, err := s.unpack(func() (io.Reader, error) { return f.open(text[at:]) }, join(by, f.by), depth, func(int) int { return where(at) })
			if err != nil && out == 0 && (f.sure || f.by == "bzip2") {
				s.opaque = "compressed in a way that can't be read"
			}
		}
	}
	s.zips(text, by, depth, where)
	for at := range all(text, "x") {
		if !s.zlib(text, at, by, depth, where) {
			return
		}
	}
	for at := range all(text, "stream") { // of a PDF: of other windows, too
		at += len("stream")
		at += len(text[at:]) - len(bytes.TrimLeft(text[at:], "\r\n"))
		if at < len(text) && text[at] != 'x' && !s.zlib(text, at, by, depth, where) {
			return
		}
	}
}

// zlib looks through a stream of it, if there is one. It is false when nothing is left to spend.
func (s *search) zlib(text []byte, at int, by string, depth int, where place) bool {
	if at+2 > len(text) {
		return true
	}
	const method, dictionary = 8, 0x20
	b, flags := text[at], text[at+1]
	if b&0xf != method || b>>4 > 7 || flags&dictionary != 0 || (int(b)<<8|int(flags))%31 != 0 {
		return true
	}
	if !s.spend(tryCost) {
		return false
	}
	s.unpack(func() (io.Reader, error) { return zlib.NewReader(bytes.NewReader(text[at:])) }, join(by, "zlib"), depth, func(int) int { return where(at) })
	return s.budget >= 0
}

// zips looks through the files of zips. It goes by what stands before each file, and by no
// list of them, which may leave one out, or lie of its size. Names stand there as they are.
func (s *search) zips(text []byte, by string, depth int, where place) {
	n := 0
	for at := range all(text, "PK\x03\x04") {
		const fixed = 30 // bytes before a name
		if spoken(text, at, by) {
			continue
		}
		if n++; n > maxZip || s.budget < 0 {
			s.opaque = "an archive of more files than can be looked at"
			return
		}
		if len(text) < at+fixed {
			s.opaque = "an archive that can't be read"
			return
		}
		word := func(i int) int { return int(binary.LittleEndian.Uint16(text[at+i:])) }
		flags, method, data := word(6), word(8), at+fixed+word(26)+word(28)
		switch {
		case flags&1 != 0:
			s.opaque = "an archive that is encrypted"
			continue
		case method != 0 && method != 8:
			s.opaque = "an archive that is compressed in a way that can't be read"
			continue
		case data > len(text):
			s.opaque = "an archive that can't be read"
			continue
		}
		// What is stored stands there as it is, unless another header says that it is not.
		_, err := s.unpack(func() (io.Reader, error) { return flate.NewReader(bytes.NewReader(text[data:])), nil }, join(by, "zip"), depth, func(int) int { return where(at) })
		if err != nil && method != 0 {
			s.opaque = "an archive that can't be read"
		}
	}
}

// unpack looks through what a reader gives, as far as it is what it seems to be. It returns
// how much that was, and why it was not all.
func (s *search) unpack(open func() (io.Reader, error), by string, depth int, where place) (n int, err error) {
	r, err := open()
	if err != nil {
		return 0, err // it only begins like that
	}
	if z, ok := r.(*zstd.Decoder); ok {
		defer z.Close()
	}
	text, err := io.ReadAll(io.LimitReader(r, max(0, s.budget)+1))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		s.opaque = "it expands to more than can be looked at"
	}
	if len(text) == 0 || !s.spend(len(text)) {
		return len(text), err
	}
	switch {
	case depth < maxDepth:
		s.text(text, by, depth+1, where)
	case err == nil:
		s.opaque = "it is compressed more often than can be looked at"
	}
	return len(text), err
}

func join(by, more string) string {
	return strings.TrimSuffix(more+" in "+by, " in ")
}
