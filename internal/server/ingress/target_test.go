package ingress

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestParseHost(t *testing.T) {
	id := "sb_" + strings.Repeat("a", 20)
	tests := []struct {
		name, host string
		want       target
		ok         bool
	}{
		{"plain", "3000-" + id + ".b.example", target{id, 3000}, true},
		{"with-port", "3000-" + id + ".b.example:8443", target{id, 3000}, true},
		{"upper-case", strings.ToUpper("3000-" + id + ".b.example"), target{id, 3000}, true},
		{"trailing-dot", "3000-" + id + ".b.example.", target{id, 3000}, true},
		{"dash", "3000-sb-" + strings.Repeat("a", 20) + ".b.example", target{id, 3000}, true},
		{"old-client", "3000-" + id + "-carboy.b.example", target{id, 3000}, true},
		{"old-client-dash", "3000-sb-" + strings.Repeat("a", 20) + "-carboy.b.example", target{id, 3000}, true},
		{"other-client", "3000-" + id + "-6532622b.b.example", target{}, true},
		{"port-too-high", "65536-" + id + ".b.example", target{}, true},
		{"port-zero", "0-" + id + ".b.example", target{}, true},
		{"port-padded", "03000-" + id + ".b.example", target{}, true},
		{"port-signed", "+3000-" + id + ".b.example", target{}, false},
		{"port-is-a-word", "web-" + id + ".b.example", target{}, false},
		{"other-domain", "3000-" + id + ".c.example", target{}, false},
		{"domain-as-suffix", "3000-" + id + ".xb.example", target{}, false},
		{"deeper", "3000-" + id + ".x.b.example", target{}, false},
		{"no-id", "3000-.b.example", target{}, true},
		{"odd-id", "3000-sb_" + strings.Repeat("/", 20) + ".b.example", target{}, true},
		{"domain-alone", "b.example", target{}, false},
		{"empty", "", target{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := parseHost(tt.host, "b.example")
			if got != tt.want || ok != tt.ok {
				t.Errorf("parseHost(%q) = %+v, %v, want %+v, %v", tt.host, got, ok, tt.want, tt.ok)
			}
		})
	}
	if _, ok := parseHost("3000-"+id+".b.example", ""); ok {
		t.Error("without a domain a host was read")
	}
}

func FuzzParseHost(f *testing.F) {
	f.Add("3000-sb_aaaaaaaaaaaaaaaaaaaa.b.example:80")
	f.Add("49983-sb-aaaaaaaaaaaaaaaaaaaa.B.example.")
	f.Add("[::1]:80")
	f.Fuzz(func(t *testing.T, host string) {
		got, ok := parseHost(host, "b.example")
		if got != (target{}) && (!ok || !sandbox.ValidID(got.id) || got.port < 1 || got.port > 65535) {
			t.Errorf("parseHost(%q) = %+v, %v, which is no sandbox and port", host, got, ok)
		}
	})
}

func TestTarget(t *testing.T) {
	id, other := "sb_"+strings.Repeat("a", 20), "sb_"+strings.Repeat("b", 20)
	name := "3000-" + id + ".b.example"
	tests := []struct {
		name, host string
		ids, ports []string
		want       target
		ok         bool
	}{
		{"api", "b.example", nil, nil, target{}, false},
		{"by-name", name, nil, nil, target{id, 3000}, true},
		{"by-headers", "b.example", []string{id}, []string{"80"}, target{id, 80}, true},
		{"on-the-shared-name", "sandbox.b.example", []string{id}, []string{"80"}, target{id, 80}, true},
		{"old-client", "b.example", []string{id + "-carboy"}, []string{"80"}, target{id, 80}, true},
		{"without-port", "b.example", []string{id}, nil, target{id, sandbox.GuestPort}, true},
		{"both-alike", name, []string{id}, []string{"3000"}, target{id, 3000}, true},
		{"another-by-header", name, []string{other}, []string{"3000"}, target{}, true},
		{"another-port-by-header", name, []string{id}, []string{"49983"}, target{}, true},
		{"another-port-by-default", name, []string{id}, nil, target{}, true},
		{"two-ids", "b.example", []string{id, other}, []string{"80"}, target{}, true},
		{"two-ports", "b.example", []string{id}, []string{"80", "81"}, target{}, true},
		{"empty-id", "b.example", []string{""}, []string{"80"}, target{}, true},
		{"port-alone", "b.example", nil, []string{"80"}, target{}, true},
		{"odd-port", "b.example", []string{id}, []string{"80 "}, target{}, true},
	}
	s := New(Options{Domain: "b.example"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host = tt.host
			r.Header["E2b-Sandbox-Id"], r.Header["E2b-Sandbox-Port"] = tt.ids, tt.ports
			if got, ok := s.target(r); got != tt.want || ok != tt.ok {
				t.Errorf("target = %+v, %v, want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzGuestPath(f *testing.F) {
	for _, p := range []string{"/health", "/init", "/%69nit", "/process.Process/Start", "//init", "/files/../init", "/carboy/archive", "/carboy/tools/read"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse(path)
		if err != nil {
			return
		}
		deep := strings.Count(strings.TrimPrefix(u.Path, "/carboy/tools"), "/") > 2
		if g, ok := lookGuestPath(u); ok && (u.Path == "/init" || deep) {
			t.Errorf("%q was let through: %+v", path, g)
		}
	})
}
