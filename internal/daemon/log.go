package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxLog is how large a log grows, in bytes, before a new one is begun. One
// old log is kept beside it.
const MaxLog = 8 << 20

// LogFile is a log of bounded size. It is safe for use by several goroutines.
type LogFile struct {
	path string
	mu   sync.Mutex
	f    *os.File
	size int64
}

// OpenLog opens the log at path, and makes it where there is none. Only its
// owner can read it.
func OpenLog(path string) (*LogFile, error) {
	l := &LogFile{path: path}
	return l, l.open()
}

func (l *LogFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", l.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	l.f, l.size = f, fi.Size()
	return nil
}

// Write implements io.Writer. A line is never split between two files.
func (l *LogFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(b)) > MaxLog {
		if err := l.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Write(b)
	l.size += int64(n)
	return n, err
}

// rotate puts the log aside and begins another. Where that fails the old one
// is emptied: a log must not fill the disk.
func (l *LogFile) rotate() error {
	if err := os.Rename(l.path, l.path+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.size = 0
		return l.f.Truncate(0)
	}
	old := l.f
	if err := l.open(); err != nil {
		return err
	}
	return old.Close()
}

// Close closes the log.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
