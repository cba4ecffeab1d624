package server

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/server/ingress"
)

// FuzzHosts looks for a host that is let in and is none of the server's, nor a
// sandbox's.
func FuzzHosts(f *testing.F) {
	f.Add("3000-sb_aaaaaaaaaaaaaaaaaaaa.b.example:80")
	f.Add("49983-sb-aaaaaaaaaaaaaaaaaaaa.B.example.")
	f.Add("[::1]:80")
	s := New(Options{Domain: "b.example", Hosts: []string{"carboy.example"}})
	f.Fuzz(func(t *testing.T, host string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if !s.ingress.Takes(r) && s.tcpHost(r) {
			if name := ingress.HostName(host); !slices.Contains([]string{"b.example", "api.b.example", "sandbox.b.example", "carboy.example"}, name) {
				t.Errorf("host %q was let in", host)
			}
		}
	})
}
