package rpc_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// pipe is both ends of a WebSocket over a pipe that holds nothing: a side that
// does not read is felt at once.
func pipe(t *testing.T, o *websocket.DialOptions) (client, server *websocket.Conn) {
	t.Helper()
	near, far := net.Pipe()
	got := make(chan *websocket.Conn, 1)
	done := make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
		}
		got <- c
		<-done
	})}
	conns := make(chan net.Conn, 1)
	conns <- far
	go func() { _ = srv.Serve(&pipes{conns}) }()
	o.HTTPClient = &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil },
	}}
	client, _, err := websocket.Dial(t.Context(), "ws://there", o)
	if err != nil {
		t.Fatal(err)
	}
	server = <-got
	t.Cleanup(func() {
		_, _ = client.CloseNow(), server.CloseNow()
		close(done)
		_ = srv.Close()
	})
	return client, server
}

type pipes struct{ conns chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p *pipes) Close() error { close(p.conns); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// Who is not read for a while, and is asked meanwhile whether it is there, does
// not lose its connection by that.
func TestPingWhileNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pings := rpc.NewPings()
		client, server := pipe(t, &websocket.DialOptions{OnPingReceived: pings.Answer})
		client.SetReadLimit(-1)
		server.SetReadLimit(-1)
		wrote := make(chan error, 1)
		go func() { wrote <- pings.Write(t.Context(), client, []byte(strings.Repeat("x", 1<<20))) }()
		type read struct {
			text string
			err  error
		}
		reads := make(chan read, 1)
		go func() {
			_, b, err := client.Read(t.Context())
			reads <- read{string(b), err}
		}()
		synctest.Wait() // the message is under way, and nobody takes it
		ping, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if err := server.Ping(ping); err == nil {
			t.Error("a ping was answered that could not be")
		}
		if err := server.Write(t.Context(), websocket.MessageText, []byte("later")); err != nil {
			t.Fatal(err)
		}
		if r := <-reads; r.err != nil || r.text != "later" {
			t.Errorf("it reads %q, %v", r.text, r.err)
		}
		if _, b, err := server.Read(t.Context()); err != nil || len(b) != 1<<20 {
			t.Errorf("its message has %d bytes, %v", len(b), err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		// Who reads gets an answer.
		go func() { _, _, _ = server.Read(t.Context()) }()
		go func() { _, _, _ = client.Read(t.Context()) }()
		if err := server.Ping(t.Context()); err != nil {
			t.Errorf("a ping: %v", err)
		}
		if err := pings.Write(t.Context(), client, []byte("and on")); err != nil {
			t.Error(err)
		}
	})
}
