// Package transcript keeps what a pod was told and what it said, in a file of JSON lines of the daemon's own: each entry is
// a line, written whole, and has a number that stays. Where a file becomes too long its oldest entries go, and the
// numbers of the others don't change.
//
// It refuses nothing that is said, and shortens none of it. What a killed daemon left half written is no entry.
package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The kinds of entries.
const (
	User      = "user"      // a turn began with it
	Note      = "note"      // said to the pod between turns
	Assistant = "assistant" // what the pod said
	End       = "end"       // of a turn
)

// The results of a turn, besides those of package client/pod's RunEnd.
const (
	Failed = "failed" // its command ended with another code than 0, or could not be started
	Lost   = "lost"   // its command ended with its sandbox
)

// Entry is one thing that was said, or done.
type Entry struct {
	Kind     string         `json:"kind"`
	At       time.Time      `json:"at"`
	Turn     int            `json:"turn,omitempty"`     // from 1
	Command  string         `json:"command,omitempty"`  // of user: what the sandbox calls what answers
	Segments []wire.Segment `json:"segments,omitempty"` // of user
	Text     string         `json:"text,omitempty"`     // of note and assistant; of end: why
	To       int64          `json:"to,omitempty"`       // of assistant: how many bytes of the command's output are said by it and before
	Result   string         `json:"result,omitempty"`   // of end
	Code     *int           `json:"code,omitempty"`     // of end: the command's; nil: not known
}

// NewSuffix ends the name of a file that is about to take another's place.
const NewSuffix = ".new"

// DefaultMax is how long a file may become, in bytes.
const DefaultMax = 16 << 20

// Log is the entries of one pod. Its methods may be called from several goroutines.
type Log struct {
	path string
	max  int64

	mu    sync.Mutex
	f     *os.File
	size  int64
	first int // number of the oldest entry
	next  int // number of the next one
	last  Entry
}

// start is the first line of a file.
type start struct {
	First int `json:"first"`
}

// Open opens the log at a path, or makes one. max bounds its size in bytes; 0: DefaultMax.
func Open(path string, max int64) (*Log, error) {
	l := &Log{path: path, max: max}
	if l.max <= 0 {
		l.max = DefaultMax
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, failed(err, path)
	}
	l.f = f
	if err := l.load(); err != nil {
		f.Close()
		return nil, failed(err, path)
	}
	return l, nil
}

func failed(err error, path string) error {
	return fmt.Errorf("the transcript of a pod: %w", sandbox.DiskError(err, "the disk of "+path))
}

// load reads what is there, and cuts off what is no line.
func (l *Log) load() error {
	var whole int64
	head := false
	err := lines(io.NewSectionReader(l.f, 0, 1<<62), func(line []byte) error {
		whole += int64(len(line)) + 1
		if !head {
			var s start
			if err := json.Unmarshal(line, &s); err != nil || s.First < 0 {
				return fmt.Errorf("%s begins with no number of an entry: %w", l.path, err)
			}
			head, l.first, l.next = true, s.First, s.First
			return nil
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("entry %d of %s: %w", l.next, l.path, err)
		}
		l.next, l.last = l.next+1, e
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.f.Truncate(whole); err != nil {
		return err
	}
	if l.size = whole; !head {
		return l.write(start{})
	}
	return nil
}

// lines calls f with each whole line, without its end.
func lines(r io.Reader, f func(line []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := f(bytes.TrimSuffix(line, []byte{'\n'})); err != nil {
			return err
		}
	}
}

// write appends a line.
func (l *Log) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	n, err := l.f.Write(append(b, '\n'))
	if err != nil && n > 0 {
		err = errors.Join(err, l.f.Truncate(l.size))
	}
	if err == nil {
		l.size += int64(n)
	}
	return err
}

// Append adds an entry, and returns its number.
func (l *Log) Append(e Entry) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, fs.ErrClosed
	}
	if err := l.write(e); err != nil {
		return 0, failed(err, l.path)
	}
	n := l.next
	l.next, l.last = n+1, e
	if l.size > l.max {
		if err := l.shorten(); err != nil {
			return n, failed(err, l.path)
		}
	}
	return n, nil
}

// Last is the newest entry; the zero Entry: there is none.
func (l *Log) Last() Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Read calls f with the entries from a number on, and returns the number of the first one that was there to be read, and that
// of the next one there will be.
func (l *Log) Read(from int, f func(n int, e Entry) error) (first, next int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, 0, fs.ErrClosed
	}
	n := l.first - 1
	err = lines(io.NewSectionReader(l.f, 0, l.size), func(line []byte) error {
		at := n
		if n++; at < max(from, l.first) {
			return nil
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("entry %d of %s: %w", at, l.path, err)
		}
		return f(at, e)
	})
	return max(from, l.first), l.next, err
}

// shorten leaves out the oldest entries, so that half of the room is free.
func (l *Log) shorten() error {
	var keep [][]byte
	var size int64
	err := lines(io.NewSectionReader(l.f, 0, l.size), func(line []byte) error {
		keep = append(keep, bytes.Clone(line))
		size += int64(len(line)) + 1
		return nil
	})
	if err != nil {
		return err
	}
	first := l.first
	for keep = keep[1:]; len(keep) > 1 && size > l.max/2; keep = keep[1:] {
		size -= int64(len(keep[0])) + 1
		first++
	}
	next := l.path + NewSuffix
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	head, err := json.Marshal(start{First: first})
	if err == nil {
		b := append(bytes.Join(append([][]byte{head}, keep...), []byte{'\n'}), '\n')
		if _, err = f.Write(b); err == nil {
			err = os.Rename(next, l.path)
		}
		size = int64(len(b))
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(next))
	}
	l.f.Close()
	l.f, l.size, l.first = f, size, first
	return nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// Remove removes the log at a path, if there is one.
func Remove(path string) error {
	for _, p := range []string{path, path + NewSuffix} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(err, path)
		}
	}
	return nil
}
