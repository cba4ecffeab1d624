package mcpgateway

import (
	"io"
	"os"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

// logFile is a log that does not grow without end. Where it would be longer than most, its
// first half stays and the last quarter, with a note between them of how much is left out.
// The file is open for reading, too, and for appending.
type logFile struct {
	mu      sync.Mutex
	f       *os.File
	most    int64
	leftOut int64
	note    int64 // bytes of the note behind the first half; 0: there is none yet
}

// Write implements io.Writer.
func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fi, err := l.f.Stat(); err == nil && fi.Size()+int64(len(b)) > l.most {
		if err := l.shorten(fi.Size()); err != nil {
			return 0, err
		}
	}
	return l.f.Write(b)
}

// shorten leaves out what is between the two ends of a file of that size.
func (l *logFile) shorten(size int64) error {
	head := l.most / 2
	between := size - head - l.note - l.most/4
	if between <= 0 {
		return nil // it is one large write: the next one has its turn
	}
	tail := make([]byte, l.most/4)
	if _, err := l.f.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	l.leftOut += between
	note := excerpt.Note(l.leftOut)
	if err := l.f.Truncate(head); err != nil {
		return err
	}
	l.note = int64(len(note))
	_, err := l.f.Write(append([]byte(note), tail...))
	return err
}
