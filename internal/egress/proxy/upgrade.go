package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// upgrade carries what a connection has become: WebSocket, or whatever else
// the two agreed on.
func (x *exchange) upgrade(resp *http.Response, up string, below *net.Conn) *Refusal {
	if !strings.EqualFold(resp.Header.Get("Upgrade"), up) {
		return refuse(http.StatusBadGateway, CodeUpstream, shown(x.host())+" upgraded to another protocol than was asked for")
	}
	upstream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return refuse(http.StatusBadGateway, CodeUpstream, "the connection can't be upgraded")
	}
	header := resp.Header.Clone()
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return refuse(http.StatusBadGateway, CodeUpstream, "the connection can't be upgraded")
	}
	x.cn.strict.Raw()
	x.status, x.begun = http.StatusSwitchingProtocols, true
	guest := hijacked(conn, rw)
	defer conn.Close()
	defer upstream.Close()
	if err := writeSwitch(conn, cleaned(resp.Header), up); err != nil {
		x.result = "the sandbox left"
		return nil
	}
	var to io.Writer = upstream
	var from io.Reader = upstream
	if cn := x.cn.p.o.Guard; cn != nil {
		to, from = cn.Stream(x.secrets, header, upstream, upstream)
	}
	defer context.AfterFunc(x.ctx, func() { conn.Close(); upstream.Close() })()
	x.carry(guest, conn, to, from, func(err error) {
		if w, ok := halfCloser(below); ok && err == nil {
			_ = w.CloseWrite()
			return
		}
		_ = upstream.Close()
	})
	return nil
}

// hijacked is a connection that was taken from its server, with what the
// server had read of it.
func hijacked(c net.Conn, rw *bufio.ReadWriter) io.Reader {
	n := rw.Reader.Buffered()
	if n == 0 {
		return c
	}
	head, _ := rw.Reader.Peek(n)
	return io.MultiReader(strings.NewReader(string(head)), c)
}

// writeSwitch answers 101.
func writeSwitch(c net.Conn, header http.Header, up string) error {
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + up + "\r\n")
	if err := header.WriteSubset(&b, map[string]bool{"Content-Length": true}); err != nil {
		return err
	}
	b.WriteString("\r\n")
	_, err := io.WriteString(c, b.String())
	return err
}

// halfCloser is a connection that can end what is written by itself.
func halfCloser(c *net.Conn) (interface{ CloseWrite() error }, bool) {
	if c == nil {
		return nil, false
	}
	w, ok := (*c).(interface{ CloseWrite() error })
	return w, ok
}

// carry copies both ways until both have ended, or one has failed. ended is
// told how what the guest sends has.
func (x *exchange) carry(guest io.Reader, conn net.Conn, to io.Writer, from io.Reader, ended func(error)) {
	done := make(chan error, 1)
	go func() {
		err := x.pump(to, guest, &x.sent, x.limits.RequestBytes, "the connection carried more bytes than its rule allows")
		ended(err)
		done <- err
	}()
	err := x.pump(conn, from, &x.received, x.limits.ResponseBytes, "the connection carried more bytes than its rule allows")
	if w, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		_ = w.CloseWrite()
		// What the guest still says has its time, and no more.
		_ = conn.SetReadDeadline(time.Now().Add(lastWords))
	} else {
		_ = conn.Close()
	}
	err = errors.Join(err, <-done)
	if why := x.failure(); why != nil {
		x.note(why)
	} else if err != nil {
		x.result = "broke off"
	}
}

// lastWords is how long a side may speak after the other has ended.
const lastWords = 30 * time.Second

// pump copies one way.
func (x *exchange) pump(to io.Writer, from io.Reader, count *atomic.Int64, most int64, reason string) error {
	var buf buffer
	defer buf.release()
	for {
		room := buf.room()
		n, err := from.Read(room)
		if n > 0 {
			if why := x.spend(int64(n), count.Add(int64(n)), most, reason); why != nil {
				x.fail(why)
				return why
			}
			if _, err := to.Write(room[:n]); err != nil {
				return err
			}
			buf.used(n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
