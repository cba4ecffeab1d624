package hold

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The parts of the kernel's FUSE protocol (include/uapi/linux/fuse.h, version 7.31 and
// later) that a file system of one file needs. Integers are in the machine's order.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43

	inHeader   = 40
	outHeader  = 16
	writeHead  = 40 // of a write, between the header and the data
	protoMajor = 7
	protoMinor = 31

	initAsyncRead = 1 << 0
	initBigWrites = 1 << 5
	initAsyncDIO  = 1 << 15
	initMaxPages  = 1 << 22

	openDirect   = 1 << 0
	openNoFlush  = 1 << 5 // or a process of ours that is killed would wait for itself
	openParallel = 1 << 6

	// What the kernel may have under way for one image: more than a loop device has
	// requests, so that no read waits behind writes that are held.
	maxBackground = 1024

	rootNode  = 1
	imageNode = 2
)

// maxTransfer is the most that one request carries, in bytes.
const maxTransfer = 1 << 20

// request is one of the kernel's. It is good until its buffer is given back.
type request struct {
	op     uint32
	unique uint64
	node   uint64
	body   []byte // what follows the header, but a write's data
	data   []byte // a write's
	buf    *buffer
}

// parse reads a request of n bytes from a buffer that they lie in.
func parse(b *buffer, n int) (request, bool) {
	if n < inHeader {
		return request{}, false
	}
	h := b.head[:min(n, len(b.head))]
	r := request{
		op: binary.NativeEndian.Uint32(h[4:]), unique: binary.NativeEndian.Uint64(h[8:]),
		node: binary.NativeEndian.Uint64(h[16:]), buf: b,
	}
	if uint32(n) != binary.NativeEndian.Uint32(h) {
		return request{}, false
	}
	r.body = h[inHeader:]
	if n > len(b.head) {
		r.data = b.data[:n-len(b.head)]
	}
	return r, true
}

// u64 is a field of the body, and 0 where that is too short.
func (r request) u64(at int) uint64 {
	if len(r.body) < at+8 {
		return 0
	}
	return binary.NativeEndian.Uint64(r.body[at:])
}

// u32 is u64 for a shorter field.
func (r request) u32(at int) uint32 {
	if len(r.body) < at+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(r.body[at:])
}

// The lengths of answers, in bytes.
const (
	attrLength   = 88
	initLength   = 64
	entryLength  = 40 // before the attributes
	validLength  = 16 // likewise
	openLength   = 16
	writtenBytes = 8
	statfsLength = 80

	pageSize = 4096
	forever  = 1 << 30 // seconds that an answer is good for: nobody else changes an image's length
)

// answerHead is what an answer of these parts begins with.
func answerHead(unique uint64, errno unix.Errno, parts [][]byte) []byte {
	length := outHeader
	for _, p := range parts {
		length += len(p)
	}
	out := make([]byte, outHeader)
	binary.NativeEndian.PutUint32(out, uint32(length))
	binary.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
	binary.NativeEndian.PutUint64(out[8:], unique)
	return out
}

func initAnswer() []byte {
	out, e := make([]byte, initLength), binary.NativeEndian
	e.PutUint32(out, protoMajor)
	e.PutUint32(out[4:], protoMinor)
	e.PutUint32(out[8:], maxTransfer) // of reading ahead
	e.PutUint32(out[12:], initAsyncRead|initBigWrites|initAsyncDIO|initMaxPages)
	e.PutUint16(out[16:], maxBackground)
	e.PutUint16(out[18:], maxBackground) // from where it counts as congested
	e.PutUint32(out[20:], maxTransfer)
	e.PutUint32(out[24:], 1) // nanosecond
	e.PutUint16(out[28:], maxTransfer/pageSize)
	return out
}

func entryAnswer() []byte {
	out := make([]byte, entryLength)
	binary.NativeEndian.PutUint64(out, imageNode)
	binary.NativeEndian.PutUint64(out[16:], forever)
	binary.NativeEndian.PutUint64(out[24:], forever)
	return out
}

func validAnswer() []byte {
	out := make([]byte, validLength)
	binary.NativeEndian.PutUint64(out, forever)
	return out
}

// openAnswer has the kernel cache nothing, and write at several places at once.
func openAnswer() []byte {
	out := make([]byte, openLength)
	binary.NativeEndian.PutUint32(out[8:], openDirect|openNoFlush|openParallel)
	return out
}

func writeAnswer(n int) []byte {
	out := make([]byte, writtenBytes)
	binary.NativeEndian.PutUint32(out, uint32(n))
	return out
}

// attributes are those of the root directory or of the image.
func attributes(node uint64, size int64) []byte {
	out, e := make([]byte, attrLength), binary.NativeEndian
	e.PutUint64(out, node)
	mode := uint32(unix.S_IFDIR | 0o500)
	if node == imageNode {
		mode = unix.S_IFREG | 0o600
		e.PutUint64(out[8:], uint64(size))
		e.PutUint64(out[16:], uint64(size)/512)
	}
	e.PutUint32(out[60:], mode)
	e.PutUint32(out[64:], 1)
	e.PutUint32(out[80:], pageSize)
	return out
}
