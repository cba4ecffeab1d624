package gitgate

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/zlib"

	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
)

// parcel is the pack that goes upstream. It is written here, and by no git, from the very
// bytes that were looked at: what is not among them can't be in it.
type parcel struct {
	file *os.File
	to   *bufio.Writer // into the file and the sum
	sum  hash.Hash
	z    *zlib.Writer
	left int // objects that are to come
	size int64
}

// newParcel begins a pack of so many objects.
func newParcel(name string, f pack.Format, objects int) (*parcel, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	b := &parcel{file: file, sum: f.New(), left: objects}
	b.to = bufio.NewWriter(io.MultiWriter(file, b.sum))
	b.z = zlib.NewWriter(b.to)
	const version = 2
	head := binary.BigEndian.AppendUint32([]byte("PACK"), version)
	_, err = b.to.Write(binary.BigEndian.AppendUint32(head, uint32(objects)))
	return b, err
}

// add appends an object, whole: there are no deltas.
func (b *parcel) add(kind string, text []byte) error {
	n := 1 + slices.Index([]string{"commit", "tree", "blob", "tag"}, kind) // as packs number them
	if b.left--; n == 0 || b.left < 0 {
		return errors.New("git tells of an object that is none")
	}
	// Four bits of the size beside the kind, and seven in each byte that follows.
	size := uint64(len(text))
	head := []byte{byte(n<<4) | byte(size&0xf)}
	for size >>= 4; size > 0; size >>= 7 {
		head[len(head)-1] |= 0x80
		head = append(head, byte(size&0x7f))
	}
	if _, err := b.to.Write(head); err != nil {
		return err
	}
	b.z.Reset(b.to)
	_, err := io.Copy(b.z, bytes.NewReader(text))
	return errors.Join(err, b.z.Close())
}

// end ends the pack, and has it read from its beginning.
func (b *parcel) end() (err error) {
	if b.left != 0 {
		return errors.New("git does not tell of all objects")
	}
	if err := b.to.Flush(); err != nil {
		return err
	}
	if _, err := b.file.Write(b.sum.Sum(nil)); err != nil {
		return err
	}
	if b.size, err = b.file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	_, err = b.file.Seek(0, io.SeekStart)
	return err
}

// Read implements io.Reader.
func (b *parcel) Read(p []byte) (int, error) { return b.file.Read(p) }

// close gives the file back. Its name goes with the quarantine.
func (b *parcel) close() { _ = b.file.Close() } // it was read, or is of no use
