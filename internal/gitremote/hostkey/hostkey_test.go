package hostkey_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/gitremote/hostkey"
)

// host is one that has those keys, or that says something else.
func host(t *testing.T, says string, keys ...any) hostkey.Dial {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := &ssh.ServerConfig{NoClientAuth: true}
	for _, k := range keys {
		s, err := ssh.NewSignerFromKey(k)
		if err != nil {
			t.Fatal(err)
		}
		c.AddHostKey(s)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if says != "" {
					_, _ = io.WriteString(conn, says)
					return
				}
				_, _, _, _ = ssh.NewServerConn(conn, c)
			}()
		}
	}()
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
	}
}

// TestAsk: each key that a host has is told, the one to take first, and nothing is told of one that has none.
func TestAsk(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	got, err := hostkey.Ask(t.Context(), host(t, "", old, ed), "git.example", "22")
	if err != nil || len(got) != 2 || !strings.HasPrefix(got[0], "ssh-ed25519 ") || !strings.HasPrefix(got[1], "ssh-rsa ") || !gitremote.IsKey(got[0]) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := hostkey.Ask(t.Context(), host(t, "HTTP/1.1 400 Bad Request\r\n\r\n"), "git.example", "22"); err == nil {
		t.Errorf("a host that speaks no SSH: %q", got)
	}
	away := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("nobody is there")}
	}
	if _, err := hostkey.Ask(t.Context(), away, "git.example", "22"); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("a host that is away: %v", err)
	}
}
