package pod

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// DefaultMaxLine is how long a line may be that is kept, in bytes, where Options don't say.
const DefaultMaxLine = 4 << 20

// Options tune a connection. The zero value works.
type Options struct {
	MaxLine int // bytes; default: DefaultMaxLine
}

// Conn is a connection between a pod and who speaks to it. One goroutine may read it, and any
// number write.
type Conn struct {
	c   io.ReadWriteCloser
	r   *bufio.Reader
	max int

	mu sync.Mutex // held by who writes a line
}

// Dial connects to the socket of a pod, whose directory nobody else can write to. What its error
// says of the pod, LivenessOf knows.
func Dial(ctx context.Context, path string, o Options) (*Conn, error) {
	c, err := home.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	return NewConn(c, o), nil
}

// NewConn speaks over a connection that is there, at either end. It takes c over.
func NewConn(c io.ReadWriteCloser, o Options) *Conn {
	n := &Conn{c: c, r: bufio.NewReaderSize(c, 16<<10), max: o.MaxLine}
	if n.max <= 0 {
		n.max = DefaultMaxLine
	}
	return n
}

// Close closes the connection. Reading and writing end.
func (c *Conn) Close() error { return c.c.Close() }

// Send asks. Where the pod does not read it blocks until somebody reads what the pod writes:
// see Deliver.
func (c *Conn) Send(m Method) error { return c.write(m) }

// Tell sends an event: what a pod does.
func (c *Conn) Tell(e Event) error { return c.write(e) }

func (c *Conn) write(v any) error {
	line, err := json.Marshal(v) // in which there is no line break
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.c.Write(append(line, '\n'))
	return err
}

// Event waits for the next event. Its error is io.EOF at the end, a *LineError for a line that
// was passed over, a *VersionError for a pod that can't be spoken to.
func (c *Conn) Event() (Event, error) {
	var e Event
	if err := c.read(&e, func() bool { return e.Name != "" }); err != nil {
		return Event{}, err
	}
	if e.Name == EventHello {
		var h Hello
		if err := e.Into(&h); err != nil {
			return Event{}, &LineError{Err: err}
		}
		if h.Version != Version {
			return Event{}, &VersionError{Version: h.Version}
		}
	}
	return e, nil
}

// Method waits for the next method: what a pod does. Its error is io.EOF at the end, also of
// a connection on which nothing was said, and a *LineError for a line that was passed over.
func (c *Conn) Method() (Method, error) {
	var m Method
	err := c.read(&m, func() bool { return m.Name != "" })
	return m, err
}

// read reads the next line that is not blank.
func (c *Conn) read(v any, named func() bool) error {
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := strict.Known(line, v); err != nil {
			return &LineError{Err: err}
		}
		if !named() {
			return &LineError{Err: errors.New("it has no name of a method or event")}
		}
		return nil
	}
}

// line reads to the next line break, and keeps no more of it than it may be long. What the end
// of the connection cuts off is no line.
func (c *Conn) line() (line []byte, err error) {
	long := false
	for {
		part, err := c.r.ReadSlice('\n')
		if !long && len(line)+len(part) > c.max {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (len(line) > 0 || long):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case long:
			return nil, &LineError{TooLong: true, Err: fmt.Errorf("it is longer than %d bytes", c.max)}
		default:
			return line, nil
		}
	}
}
