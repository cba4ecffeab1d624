package process

import "bytes"

// MaxLine is how long a line may be, in bytes without its newline.
const MaxLine = 16 << 20

// keepBuffer is up to what size an empty buffer is kept for what comes next.
const keepBuffer = 1 << 20

// What framer.next finds.
type found int

const (
	nothing found = iota // no whole line yet
	oneLine
	tooLong // a line of more than the most; it is left out
)

// framer cuts a stream of bytes into lines, whatever pieces it comes in.
type framer struct {
	most    int    // bytes of a line
	buf     []byte // what was received and is not yet a line
	room    []byte // of which buf is the end, from its beginning
	scanned int    // of buf: no newline is in there
	off     int64  // in the stream, of buf's first byte
	skip    bool   // up to the next newline, it belongs to a line that is left out
}

// end is the offset of what comes next.
func (f *framer) end() int64 { return f.off + int64(len(f.buf)) }

// add takes what comes next. The room of lines that were cut off is used again.
func (f *framer) add(data []byte) {
	need := len(f.buf) + len(data)
	switch {
	case need <= cap(f.buf):
		f.buf = append(f.buf, data...)
	case need <= cap(f.room) && cap(f.room) <= keepBuffer:
		f.buf = append(append(f.room[:0], f.buf...), data...)
	default:
		f.buf = append(f.buf, data...)
		f.room = f.buf[:0]
	}
}

// next returns the next whole line without its newline. The line is the
// caller's.
func (f *framer) next() (line []byte, what found) {
	for {
		i := bytes.IndexByte(f.buf[f.scanned:], '\n')
		switch {
		case i < 0 && f.skip:
			f.take(len(f.buf))
			return nil, nothing
		case i < 0 && len(f.buf) > f.most:
			f.skip = true
			f.take(len(f.buf))
			return nil, tooLong
		case i < 0:
			f.scanned = len(f.buf)
			return nil, nothing
		}
		i += f.scanned
		switch {
		case f.skip:
			f.skip = false
			f.take(i + 1)
		case i > f.most:
			f.take(i + 1)
			return nil, tooLong
		default:
			return f.cut(i, i+1), oneLine
		}
	}
}

// rest returns what is left at the stream's end: a line without a newline.
func (f *framer) rest() (line []byte, what found) {
	line, what = f.next()
	if what != nothing || len(f.buf) == 0 {
		return line, what
	}
	return f.cut(len(f.buf), len(f.buf)), oneLine
}

// cut takes n bytes, of which the first are a line. A long one is not copied.
func (f *framer) cut(line, n int) []byte {
	if line < keepBuffer {
		b := bytes.Clone(f.buf[:line])
		f.take(n)
		return b
	}
	b := f.buf[:line:line]
	f.buf = bytes.Clone(f.buf[n:])
	f.room = f.buf[:0] // the rest of it is the line's
	f.off += int64(n)
	f.scanned = 0
	return b
}

// take leaves n bytes out.
func (f *framer) take(n int) {
	f.off += int64(n)
	f.scanned = 0
	f.buf = f.buf[n:]
	if len(f.buf) == 0 && cap(f.room) > keepBuffer {
		f.buf, f.room = nil, nil
	}
}

// jump leaves out what is there and all up to an offset, and the rest of the
// line that is there.
func (f *framer) jump(to int64) {
	f.take(len(f.buf))
	f.off = to
	f.skip = true
}
