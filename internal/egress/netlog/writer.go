package netlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"
)

// Bounds of a Writer.
const (
	MinLimit   = 4 * maxLine // of each file
	maxPending = 1 << 20     // bytes that wait to be written
)

// File is what a Writer needs of an *os.File: one that was opened for reading
// and writing, and not with O_APPEND.
type File interface {
	io.ReaderAt
	io.WriterAt
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// Writer writes a sandbox's record. Its methods may be called by several
// goroutines.
type Writer struct {
	files   [2]File
	limit   int64
	sandbox string
	now     func() time.Time

	// Used by the goroutine that writes, alone.
	active int
	size   int64 // of the active file
	turn   uint64

	wake chan struct{} // there is something to write
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	seq     uint64 // of the last record
	pending []byte // whole lines
	repeats repeats
	lost    int // records that found no place
	closed  bool
	idle    []chan struct{} // closed when all is written
	err     error
}

// NewWriter goes on where the files end: a last line that was cut short is
// dropped. Each is emptied, in turn, when the other holds limit bytes. now may
// be nil: time.Now. To be closed.
func NewWriter(a, b File, limit int64, sandbox string, now func() time.Time) (*Writer, error) {
	if limit < MinLimit {
		return nil, fmt.Errorf("record: a limit of %d bytes; at least %d are needed", limit, MinLimit)
	}
	if now == nil {
		now = time.Now
	}
	w := &Writer{
		files: [2]File{a, b}, limit: limit, sandbox: sandbox, now: now,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := w.resume(); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// Add writes a record down, or counts it into one that will be, and does not
// wait for that. It sets Seq and Sandbox, and Time where there is none. What
// can't be written is counted, and the count is written when that works again.
func (w *Writer) Add(r Record) {
	bound(&r)
	now := w.now()
	if r.Time.IsZero() {
		r.Time = now
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.repeats.over(now) {
		w.countedLocked(now)
	}
	if r.Verdict != Deny || w.repeats.admit(&r) {
		w.appendLocked(&r)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// countedLocked writes down what was counted.
func (w *Writer) countedLocked(now time.Time) {
	for _, r := range w.repeats.take(now) {
		w.appendLocked(r)
	}
}

func (w *Writer) appendLocked(r *Record) {
	if len(w.pending) > maxPending-2*maxLine {
		w.lost++
		return
	}
	w.lostLocked(r.Time)
	r.Sandbox = w.sandbox
	r.Seq = w.seq + 1
	line, err := encode(w.pending, r)
	if err != nil || len(line)-len(w.pending) > maxLine {
		w.lost++
		return
	}
	w.seq, w.pending = r.Seq, line
}

// lostLocked says what was lost, before what comes next.
func (w *Writer) lostLocked(now time.Time) {
	n := w.lost
	if n == 0 {
		return
	}
	w.lost = 0
	w.appendLocked(&Record{
		Time: now, Verdict: Deny, Code: CodeLost, Count: n,
		Reason: fmt.Sprintf("%d records could not be written", n),
	})
}

// Flush returns when all that was added is written, or could not be: then with
// the error. What is being counted is written first.
func (w *Writer) Flush(ctx context.Context) error {
	idle := make(chan struct{})
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return w.failure()
	}
	w.countedLocked(w.now())
	w.idle = append(w.idle, idle)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case <-idle:
		return w.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close writes what is left, and returns the last error of writing. The files
// are the caller's to close. What is added afterwards is dropped.
func (w *Writer) Close() error {
	w.mu.Lock()
	first := !w.closed
	if first {
		w.countedLocked(w.now())
		w.closed = true
		close(w.stop)
	}
	w.mu.Unlock()
	<-w.done
	return w.failure()
}

// run writes until Close.
func (w *Writer) run() {
	defer close(w.done)
	timer := time.NewTimer(window)
	defer timer.Stop()
	for {
		last := false
		select {
		case <-w.wake:
		case <-timer.C:
		case <-w.stop:
			last = true
		}
		if again := w.write(); again {
			timer.Reset(window)
		}
		if last {
			return
		}
	}
}

// write writes what is pending, and reports whether something is being counted
// that will be pending without another Add.
func (w *Writer) write() (again bool) {
	w.mu.Lock()
	now := w.now()
	if w.repeats.over(now) {
		w.countedLocked(now)
	}
	w.lostLocked(now)
	lines, idle := w.pending, w.idle
	w.pending, w.idle = nil, nil
	w.mu.Unlock()

	n, err := w.writeLines(lines)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	if err != nil {
		w.lost += countLost(lines[n:])
	} else if w.pending == nil && cap(lines) <= 2*maxLine {
		w.pending = lines[:0]
	}
	for _, c := range idle {
		close(c)
	}
	return w.repeats.counting() || w.lost > 0
}

// countLost counts the records of lines, and those that they stand for.
func countLost(lines []byte) (n int) {
	for line := range bytes.Lines(lines) {
		n++
		if r, ok := decode(line); ok && r.Code == CodeLost {
			n += r.Count - 1
		}
	}
	return n
}

// writeLines writes whole lines and returns how many bytes of them.
func (w *Writer) writeLines(lines []byte) (done int, err error) {
	for done < len(lines) {
		n := int(min(w.limit-w.size, int64(len(lines)-done)))
		n = bytes.LastIndexByte(lines[done:done+max(n, 0)], '\n') + 1
		if n == 0 {
			if err := w.takeTurn(); err != nil {
				return done, err
			}
			continue
		}
		if _, err := w.files[w.active].WriteAt(lines[done:done+n], w.size); err != nil {
			return done, fmt.Errorf("record: %w", err)
		}
		w.size += int64(n)
		done += n
	}
	return done, nil
}

// takeTurn empties the file that was not active, but for the refusals that
// are kept, and makes it active.
func (w *Writer) takeTurn() error {
	other := w.files[1-w.active]
	kept, err := keep(other, w.limit/keepShare)
	if err != nil {
		return err
	}
	head := append(header{Turn: w.turn + 1}.line(), kept...)
	if err := other.Truncate(0); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if _, err := other.WriteAt(head, 0); err != nil {
		return errors.Join(fmt.Errorf("record: %w", err), other.Truncate(0))
	}
	w.active, w.size, w.turn = 1-w.active, int64(len(head)), w.turn+1
	return nil
}
