package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// hundred is a policy of a hundred rules, as presets and people make them.
func hundred(b *testing.B) *policy.Set {
	p := policy.Policy{Presets: []string{"npm", "pypi", "go", "github", "anthropic"}}
	for i := range 80 {
		p.Rules = append(p.Rules, policy.Rule{
			Hosts: []string{fmt.Sprintf("h%d.example.com", i), fmt.Sprintf("*.w%d.example.com", i)},
			Matches: []policy.Match{{
				Methods: []string{"GET", "POST"}, Paths: []policy.Value{{Value: fmt.Sprintf("/v%d", i)}, {Type: "regex", Value: `/x/[^/]+/y`}},
			}},
		})
	}
	for i := range 10 {
		p.Rules = append(p.Rules, policy.Rule{Action: "deny", Hosts: []string{fmt.Sprintf("*.bad%d.example.com", i)}})
	}
	return compile(b, p)
}

func BenchmarkRequest(b *testing.B) {
	s := hundred(b)
	for _, bb := range []struct{ name, method, url string }{
		{"exact", "GET", "https://h40.example.com/v40/some/thing"},
		{"regex", "GET", "https://h40.example.com/x/some/y"},
		{"wildcard", "POST", "https://a.b.w70.example.com/v70/"},
		{"preset", "GET", "https://github.com/o/r/info/refs?service=git-upload-pack"},
		{"refused", "PUT", "https://h40.example.com/v40/some/thing"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := ask(b, bb.method, bb.url, server)
			b.ReportAllocs()
			for b.Loop() {
				s.Request(r)
			}
		})
	}
}

func BenchmarkConnect(b *testing.B) {
	s := hundred(b)
	c := policy.Conn{Addr: netip.MustParseAddrPort(server + ":443"), Names: []string{"h40.example.com"}}
	b.ReportAllocs()
	for b.Loop() {
		s.Connect(c)
	}
}

func BenchmarkName(b *testing.B) {
	s := hundred(b)
	b.ReportAllocs()
	for b.Loop() {
		s.Name("a.b.w70.example.com")
	}
}

func BenchmarkCompile(b *testing.B) {
	p := hundred(b).Policy()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.Compile(p, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.Parse([]byte(everything)); err != nil {
			b.Fatal(err)
		}
	}
}
