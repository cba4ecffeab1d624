package server_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

// A key opens nothing that is not public, unless its line says so; whoever
// speaks over the machine's own socket may.
func TestKeysOpenNothingPrivate(t *testing.T) {
	const private, public = `{"rules":[{"addresses":["169.254.169.254"]}]}`, `{"rules":[{"addresses":["8.8.8.8"]}]}`
	for _, tt := range []struct {
		name, line string // of the key file; "": over the unix socket
		policy     string
		refused    bool
	}{
		{"key", `,"host_image":true`, private, true},
		{"key-public", `,"host_image":true`, public, false},
		{"entitled-key", `,"host_image":true,"private_network":true`, private, false},
		{"user", "", private, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, secret := keyWorld(t, tt.line)
			do := func(method, path, body string) (int, string) {
				resp, got := w.do(t, request{tcp: tt.line != "", method: method, path: path, body: body, header: map[string]string{"X-API-KEY": secret}})
				return resp.StatusCode, got
			}
			code, body := do("POST", "/v1/sandboxes", `{"policy":`+tt.policy+`}`)
			if (code == 403) != tt.refused || (code == 201) == tt.refused || tt.refused != strings.Contains(body, "private_network") {
				t.Errorf("create = %d %s", code, body)
			}
			do("POST", "/v1/sandboxes", `{"policy":`+public+`}`)
			if code, body := do("PUT", "/v1/sandboxes/web/policy", tt.policy); (code == 403) != tt.refused || (code == 200) == tt.refused {
				t.Errorf("set = %d %s", code, body)
			}
		})
	}
}

// keyWorld serves a manager of networks over both doors, to the holder of one
// key, whose line in the file goes on with more.
func keyWorld(t *testing.T, more string) (w *world, secret string) {
	t.Helper()
	secret, hash, err := key.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := key.Parse(bytes.NewBufferString(fmt.Sprintf(`{"id":"k","hash":%q%s}`+"\n", hash, more)))
	if err != nil {
		t.Fatal(err)
	}
	m := &netManager{more: make(chan struct{})}
	w = serveManager(t, m, server.Options{Tenants: auth.Tenants{Keys: keys}})
	s := server.New(server.Options{Manager: m, Tenants: auth.Tenants{Keys: keys}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, done := s.TCP(t.Context()), make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done; s.Close() })
	w.URL = "http://" + l.Addr().String()
	return w, secret
}
