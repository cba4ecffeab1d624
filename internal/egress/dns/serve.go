package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	wire "github.com/miekg/dns"
)

// maxErrors is how often in a row reading or accepting may fail before Serve
// gives up: a guest can make single ones fail.
const maxErrors = 100

// Serve answers the questions that come in over pc, one to a datagram, and
// over connections to ln, until ctx ends; either may be nil. It closes both,
// and every connection, and returns when the last answer was given: nil where
// ctx ended. It may be called again for other addresses, at the same time too.
func (s *Server) Serve(ctx context.Context, pc net.PacketConn, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	run := func(c io.Closer, loop func(context.Context, *sync.WaitGroup) error) {
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		wg.Go(func() {
			defer stop()
			defer c.Close()
			if err := loop(ctx, &wg); err != nil {
				once.Do(func() { failed = err })
				cancel()
			}
		})
	}
	if pc != nil {
		run(pc, func(ctx context.Context, wg *sync.WaitGroup) error { return s.datagrams(ctx, wg, pc) })
	}
	if ln != nil {
		run(ln, func(ctx context.Context, wg *sync.WaitGroup) error { return s.accept(ctx, wg, ln) })
	}
	wg.Go(func() { s.tell(ctx) })
	wg.Wait()
	s.countOut(true)
	return failed
}

// tell makes records of what was counted, now and then.
func (s *Server) tell(ctx context.Context) {
	t := time.NewTicker(s.times.tally)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.countOut(false)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) datagrams(ctx context.Context, wg *sync.WaitGroup, pc net.PacketConn) error {
	buf := make([]byte, maxQuestion+1)
	for failed := 0; ; {
		n, from, err := pc.ReadFrom(buf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if failed++; failed == maxErrors || errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return fmt.Errorf("read questions: %w", err)
			}
			continue
		}
		failed = 0
		send := func(answer []byte) {
			if answer != nil {
				_, _ = pc.WriteTo(answer, from) // the guest asks again
			}
		}
		select {
		case s.slots <- struct{}{}:
			msg := append([]byte(nil), buf[:n]...)
			wg.Go(func() {
				defer func() { <-s.slots }()
				send(s.handle(ctx, msg, 0))
			})
		default:
			send(s.busy(buf[:n]))
		}
	}
}

func (s *Server) accept(ctx context.Context, wg *sync.WaitGroup, ln net.Listener) error {
	for failed := 0; ; {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return nil
		}
		if err != nil {
			if failed++; failed == maxErrors || errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("accept questions: %w", err)
			}
			continue
		}
		failed = 0
		select {
		case s.conns <- struct{}{}:
			wg.Go(func() {
				defer func() { <-s.conns }()
				s.stream(ctx, conn)
			})
		default:
			s.count(refuse(CodeLimit, "", fmt.Sprintf("more than %d connections for questions", maxConns)), "")
			_ = conn.Close()
		}
	}
}

// stream answers the questions on one connection, in turn. A guest that is
// slow to write or read one loses it.
func (s *Server) stream(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var length [2]byte
	for ctx.Err() == nil {
		_ = conn.SetDeadline(time.Now().Add(s.times.message))
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n > maxQuestion {
			s.count(refuse(CodeMalformed, "", fmt.Sprintf("a question has at most %d bytes", maxQuestion)), "")
			return
		}
		msg := make([]byte, n)
		if _, err := io.ReadFull(conn, msg); err != nil {
			return
		}
		answer := s.handle(ctx, msg, wire.MaxMsgSize)
		if answer == nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(s.times.message))
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
