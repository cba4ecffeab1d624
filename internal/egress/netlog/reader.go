package netlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// defaultPoll is how often Read looks for more.
const defaultPoll = 100 * time.Millisecond

// Options say which records Read is after.
type Options struct {
	After  uint64        // those with a greater Seq
	Denied bool          // refusals alone
	Follow bool          // go on with what will be written, until the context ends
	Poll   time.Duration // how often to look then; 0 is defaultPoll
}

// Read gives the records of two files to yield, in the order of their numbers,
// and each once. Files that are not there hold nothing. What a writer does
// meanwhile is no error: records that went before they were read are missing,
// and so are lines that are no records.
//
// It returns yield's error, or the context's cause.
func Read(ctx context.Context, a, b string, o Options, yield func(Record) error) error {
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	m := merge{files: [2]cursor{{path: a}, {path: b}}, last: o.After}
	defer m.close()
	ticker := time.NewTicker(o.Poll)
	defer ticker.Stop()
	for {
		r, ok, err := m.next()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case ok && o.Denied && r.Verdict != Deny:
		case ok:
			if err := yield(r); err != nil {
				return err
			}
		case !o.Follow:
			return nil
		default:
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}
}

// merge puts the records of two files into one order.
type merge struct {
	files [2]cursor
	last  uint64 // the number of the one given last
}

// next returns the record that follows the last. ok is false while there is
// none.
func (m *merge) next() (r Record, ok bool, err error) {
	// The one that follows at once needs no look at the other file. Any other
	// is given only once both files were read after it was found: the file that
	// was read before the other may have got the missing ones meanwhile, before
	// it was the other's turn.
	from := m.first()
	for found := false; from == nil || from.queue[0].Seq != m.last+1; from = m.first() {
		if found {
			break
		}
		found = from != nil
		for i := range m.files {
			if err := m.files[i].fill(m.last); err != nil {
				return Record{}, false, err
			}
		}
		if !found && m.first() == nil {
			return Record{}, false, nil
		}
	}
	r = from.queue[0]
	from.queue = from.queue[1:]
	m.last = r.Seq
	return r, true, nil
}

// first returns the file whose next record has the least number.
func (m *merge) first() (from *cursor) {
	for i := range m.files {
		c := &m.files[i]
		c.drop(m.last)
		if len(c.queue) > 0 && (from == nil || c.queue[0].Seq < from.queue[0].Seq) {
			from = c
		}
	}
	return from
}

func (m *merge) close() {
	for i := range m.files {
		if f := m.files[i].file; f != nil {
			f.Close()
		}
	}
}

// cursor is a place in one file.
type cursor struct {
	path string
	file *os.File // nil until it is there
	turn uint64   // whose lines were read
	at   int64    // the beginning of a line, or inside one that is too long
	skip bool     // inside one
	// queue are records that were read and not given, in the file's order.
	queue []Record
}

// chunk is read at once.
const chunk = 2 * maxLine

// drop forgets records that were given already.
func (c *cursor) drop(last uint64) {
	for len(c.queue) > 0 && c.queue[0].Seq <= last {
		c.queue = c.queue[1:]
	}
}

// fill reads on until there is a record after last in the queue, or the file
// ends.
func (c *cursor) fill(last uint64) error {
	for c.drop(last); len(c.queue) == 0; c.drop(last) {
		more, err := c.read()
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// read reads one chunk, and reports whether there may be more.
func (c *cursor) read() (more bool, err error) {
	if c.file == nil {
		c.file, err = os.Open(c.path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("record: %w", err)
		}
	}
	before, err := c.readTurn()
	if err != nil {
		return false, err
	}
	if before != c.turn {
		c.turn, c.at, c.skip = before, 0, false
	}
	if c.turn == 0 {
		return false, nil
	}
	p, err := readAt(c.file, c.at, chunk)
	if err != nil {
		return false, err
	}
	// Within one turn lines are only added. Where it is another one by now, what
	// was read may be of either.
	after, err := c.readTurn()
	if err != nil || after != before {
		return err == nil, err
	}
	return c.take(p), nil
}

func (c *cursor) readTurn() (uint64, error) {
	head, err := readAt(c.file, 0, maxHeader)
	return parseHeader(head), err
}

// take takes the whole lines of p.
func (c *cursor) take(p []byte) (more bool) {
	for {
		line, rest, ok := bytes.Cut(p, []byte("\n"))
		if !ok {
			break
		}
		if r, ok := decode(line); ok && !c.skip {
			c.queue = append(c.queue, r)
		}
		c.skip = false
		c.at += int64(len(p) - len(rest))
		p, more = rest, true
	}
	if !more && len(p) == chunk {
		c.skip = true
		c.at += int64(len(p))
		return true
	}
	return more
}
