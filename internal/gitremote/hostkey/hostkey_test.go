package hostkey_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/gitremote/hostkey"
)

// host answers by SSH with keys, or with what it says in their place.
func host(says string, keys ...any) hostkey.Dial {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if says != "" {
				_, _ = theirs.Write([]byte(says))
				return
			}
			c := &ssh.ServerConfig{NoClientAuth: true}
			for _, k := range keys {
				s, err := ssh.NewSignerFromKey(k)
				if err != nil {
					return
				}
				c.AddHostKey(s)
			}
			_, _, _, _ = ssh.NewServerConn(theirs, c)
		}()
		return ours, nil
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
	got, err := hostkey.Ask(t.Context(), host("", old, ed), "git.example", "22")
	if err != nil || len(got) != 2 || !strings.HasPrefix(got[0], "ssh-ed25519 ") || !strings.HasPrefix(got[1], "ssh-rsa ") || !gitremote.IsKey(got[0]) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := hostkey.Ask(t.Context(), host("HTTP/1.1 400 Bad Request\r\n\r\n"), "git.example", "22"); err == nil {
		t.Errorf("a host that speaks no SSH: %q", got)
	}
	away := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("nobody is there")}
	}
	if _, err := hostkey.Ask(t.Context(), away, "git.example", "22"); err == nil || !strings.Contains(err.Error(), "can't be reached") {
		t.Errorf("a host that is away: %v", err)
	}
}
