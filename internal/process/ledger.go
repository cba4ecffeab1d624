package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// position is how far a process's lines have come.
type position struct {
	out     int64 // offset of the first byte that was not delivered
	skip    bool  // it is in a line that is left out
	spooled int64 // up to here the line that begins at out is in the spool; 0: it is not
	inStart int64 // the line that is or was being written
	inEnd   int64
}

// ledger keeps a place and the beginning of a long line on disk, for the next
// daemon. Written is what the kernel has: it is to survive this process, and
// the process that it is about does not survive the machine. A nil ledger
// keeps nothing.
type ledger struct{ f *os.File }

const (
	ledgerMagic = 0x31504243 // "CBP1"
	placeSize   = 48
	spoolAt     = 4096
)

// openLedger opens the ledger at a path, and says what is in it, if anything
// is.
func openLedger(path string) (*ledger, position, bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, position{}, false, fmt.Errorf("open the ledger of a process: %w", sandbox.DiskError(err, "the disk of "+filepath.Dir(path)))
	}
	l := &ledger{f}
	p, ok := l.read()
	return l, p, ok, nil
}

func (l *ledger) read() (position, bool) {
	var b [placeSize]byte
	if _, err := l.f.ReadAt(b[:], 0); err != nil || binary.LittleEndian.Uint32(b[:]) != ledgerMagic {
		return position{}, false
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[i:])) }
	p := position{skip: b[4] != 0, out: at(8), spooled: at(16), inStart: at(24), inEnd: at(32)}
	if p.out < 0 || p.inStart < 0 || p.inEnd < p.inStart || (p.spooled != 0 && (p.spooled < p.out || p.spooled-p.out > MaxLine+MaxRead)) {
		return position{}, false
	}
	return p, true
}

// write keeps a place, at one stroke.
func (l *ledger) write(p position) error {
	if l == nil {
		return nil
	}
	var b [placeSize]byte
	binary.LittleEndian.PutUint32(b[:], ledgerMagic)
	if p.skip {
		b[4] = 1
	}
	for i, n := range []int64{p.out, p.spooled, p.inStart, p.inEnd} {
		binary.LittleEndian.PutUint64(b[8+8*i:], uint64(n))
	}
	_, err := l.f.WriteAt(b[:], 0)
	return err
}

// spool keeps a part of the line that begins at p.out.
func (l *ledger) spool(offset int64, data []byte) error {
	_, err := l.f.WriteAt(data, spoolAt+offset)
	return err
}

// spooled returns what is in the spool.
func (l *ledger) spooled(p position) ([]byte, error) {
	if l == nil || p.spooled == 0 {
		return nil, nil
	}
	b := make([]byte, p.spooled-p.out)
	if _, err := l.f.ReadAt(b, spoolAt); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

// clear gives the spool's room back.
func (l *ledger) clear() {
	if l != nil {
		_ = l.f.Truncate(spoolAt)
	}
}

func (l *ledger) close() {
	if l != nil {
		_ = l.f.Close()
	}
}

// removeLedger removes the ledger at a path, if there is one.
func removeLedger(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the ledger of a process: %w", err)
	}
	return nil
}

// Sweep removes what is in dir of processes that nobody knows any more: the
// daemon was killed between what it wrote there and its record. known are the
// commands of those that it does know.
func Sweep(dir string, known map[string]bool) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the ledgers of processes: %w", err)
	}
	var errs []error
	for _, f := range files {
		if strings.HasPrefix(f.Name(), idPrefix) && !known[f.Name()] {
			errs = append(errs, removeLedger(filepath.Join(dir, f.Name())))
		}
	}
	return errors.Join(errs...)
}
