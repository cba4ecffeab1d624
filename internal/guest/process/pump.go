package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// chunk is what is read at once, and what a pipe holds.
const chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// pump carries one output of a command to its journal, for as long as anyone
// holds the other end.
type pump struct {
	c      *Command
	stream journal.Stream
	file   *os.File
	raw    syscall.RawConn
}

func (p *pump) run() {
	defer p.file.Close()
	defer p.c.out.Settle(p.stream)
	var err error
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return
	}
	for {
		_, err := p.move(true)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = p.drain()
		}
		if err != nil {
			return
		}
	}
}

// poke makes the pumps notice that the main process has ended.
func (c *Command) poke() {
	for _, f := range c.outputs {
		if f != nil { // closed: it has seen the end by itself
			_ = f.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

// drain takes what is in the pipe at this moment, in which the main process
// has ended: all of its own output is there. What background processes go on
// writing is journalled after, but nobody waits for it.
func (p *pump) drain() error {
	if err := p.file.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	left := chunk // a terminal does not tell, and holds less
	if p.c.term == nil {
		_ = p.raw.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				left = n
			}
		})
	}
	for left > 0 {
		n, err := p.move(false)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		left -= n
	}
	p.c.out.Settle(p.stream)
	return nil
}

// move carries one chunk. Unless it may wait, 0 means that there was none.
// Memory is taken only once there is something to read.
func (p *pump) move(wait bool) (n int, err error) {
	var buf *[chunk]byte
	rerr := p.raw.Read(func(fd uintptr) bool {
		buf = chunks.Get().(*[chunk]byte)
		for {
			n, err = unix.Read(int(fd), buf[:])
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if !errors.Is(err, unix.EAGAIN) {
			return true
		}
		chunks.Put(buf)
		buf, n, err = nil, 0, nil
		return !wait
	})
	if buf != nil {
		defer chunks.Put(buf)
	}
	switch {
	case rerr != nil:
		return 0, rerr
	case err != nil: // EIO: the last one has left the terminal
		return 0, err
	case n == 0 && buf != nil:
		return 0, io.EOF
	case n == 0:
		return 0, nil
	}
	p.c.wrote(buf[:n])
	return n, p.c.out.Write(p.c.e.ctx, p.stream, buf[:n])
}
