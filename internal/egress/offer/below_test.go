package offer_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// naive are servers that resolve a request's path as servers of that kind do, and answer
// with what they would serve.
var naive = map[string]func(r *http.Request) string{
	"strict": func(r *http.Request) string { return path.Clean(unescaped(r.RequestURI)) },
	"tomcat": func(r *http.Request) string { // parameters are cut out of each segment, then it is decoded
		return path.Clean(unescaped(regexp.MustCompile(`;[^/]*`).ReplaceAllString(bare(r), "")))
	},
	"tomcat-decoded": func(r *http.Request) string {
		return path.Clean(regexp.MustCompile(`;[^/]*`).ReplaceAllString(unescaped(r.RequestURI), ""))
	},
	"twice": func(r *http.Request) string { return path.Clean(unescaped(unescaped(r.RequestURI))) },
	"twice-windows": func(r *http.Request) string {
		return path.Clean(strings.ReplaceAll(unescaped(unescaped(r.RequestURI)), `\`, "/"))
	},
	"iis": func(r *http.Request) string {
		p := strings.ReplaceAll(field.Decode(bare(r)), `\`, "/")
		var all []string
		for s := range strings.SplitSeq(p, "/") {
			s, _, _ = strings.Cut(s, ":")
			all = append(all, strings.TrimRightFunc(s, unicode.IsSpace))
		}
		return path.Clean(strings.Join(all, "/"))
	},
	"c": func(r *http.Request) string { // a segment ends at a NUL
		return path.Clean(regexp.MustCompile("\x00[^/]*").ReplaceAllString(unescaped(r.RequestURI), ""))
	},
	"overlong": func(r *http.Request) string {
		return path.Clean(strings.NewReplacer("\xc0\xae", ".", "\xc0\xaf", "/", "\uff0e", ".", "\u2025", "..", "\uff0f", "/").Replace(unescaped(r.RequestURI)))
	},
	"again": func(r *http.Request) string { // what follows a ? that was escaped is a query
		p, _, _ := strings.Cut(unescaped(r.RequestURI), "?")
		return path.Clean(p)
	},
	"rewriting": func(r *http.Request) string {
		for _, name := range []string{"X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Uri", "X-Forwarded-Path", "Destination"} {
			if v := r.Header.Get(name); v != "" {
				return v
			}
		}
		if v := r.URL.Query().Get("_url"); v != "" {
			return v
		}
		return path.Clean(r.URL.Path)
	},
}

func bare(r *http.Request) string {
	p, _, _ := strings.Cut(r.RequestURI, "?")
	return p
}

func unescaped(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	if p, err := url.PathUnescape(uri); err == nil {
		return p
	}
	return uri
}

// What is not below the path that is offered is reached on no kind of server. That each
// of the calls would reach it on one of them is shown by sending it there as it is.
func TestToStaysBelow(t *testing.T) {
	for _, tt := range []struct{ path, field string }{
		{path: "/../private"},
		{path: "/x/../../private"},
		{path: "/%2e%2e/private"},
		{path: "/.%2E/private"},
		{path: "/..%2fprivate"},
		{path: "/..;/private"},
		{path: "/..;a=b/private"},
		{path: "/%2e%2e;/private"},
		{path: "/..%3b/private"},
		{path: "/x/..;/..;/private"},
		{path: `/..\private`},
		{path: "/..%5cprivate"},
		{path: "/..%255cprivate"},
		{path: "/%252e%252e/private"},
		{path: "/..%252fprivate"},
		{path: "/%u002e%u002e/private"},
		{path: "/..%u2215private", field: "-"}, // no server here, but a code page
		{path: "/..%20/private"},
		{path: "/..::$INDEX_ALLOCATION/private"},
		{path: "/..%00/private"},
		{path: "/..%00.html/private"},
		{path: "/%c0%ae%c0%ae/private"},
		{path: "/..%c0%afprivate"},
		{path: "/%ef%bc%8e%ef%bc%8e/private"},
		{path: "/%e2%80%a5/private"},
		{path: "/../private%3fx"},
		{path: "/..%3f/private", field: "-"},
		{path: "/a//..//../private"},
		{path: "/%25252525252e%25252525252e/private", field: "-"},
		{path: "/", field: "X-Original-Url"},
		{path: "/", field: "X-Rewrite-Url"},
		{path: "/", field: "X-Forwarded-Uri"},
		{path: "/", field: "X-Forwarded-Path"},
		{path: "/", field: "Destination"},
		{path: "/?_url=/private"},
	} {
		t.Run(tt.path+tt.field, func(t *testing.T) {
			reached := tt.field == "-"
			for name, resolve := range naive {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served ", resolve(r)) }))
				defer s.Close()
				reached = reached || strings.HasPrefix(ask(s.Config.Handler, "/base"+tt.path, tt.field).Body.String(), "served /private")
				w := ask(to(t, s.URL+"/base"), tt.path, tt.field)
				var said api.GateRefusal
				if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 400 || said.Code != "bad_request" || !strings.HasPrefix(said.Message, "docs: its ") {
					t.Errorf("%s: %d %s", name, w.Code, w.Body)
				}
			}
			if !reached {
				t.Error("it leads to what is private on no server, refused or not")
			}
		})
	}
}

// What only looks like it reaches the program, as it was written.
func TestToBelow(t *testing.T) {
	s := program(t, nil)
	for _, p := range []string{
		"/", "/a", "//a", "/a//b/", "/.git/x", "/..a/b..", "/a;v=1/b", "/;x", "/a%2Fb", "/a%5Cb", "/@scope%2fname", "/100%25", "/a+b", "/%C3%A9/%E2%80%A6more",
		"/?q=../..", "/?path=/x&url=http://y", "/a:b", "/a%20b", "/-/..-", "/x?_method=PUT",
	} {
		if w := ask(to(t, s.URL+"/base"), p, ""); w.Code != 200 || !strings.HasPrefix(w.Body.String(), "GET /base"+p+" ") {
			t.Errorf("%s: %d %s", p, w.Code, w.Body)
		}
	}
}

func to(t *testing.T, target string) http.Handler {
	t.Helper()
	u, err := offer.ParseTarget(target)
	if err != nil {
		t.Fatal(err)
	}
	return offer.To(u)
}

// ask sends a path as it is written, and what is private in a field.
func ask(h http.Handler, p, name string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RequestURI = p
	raw, query, _ := strings.Cut(p, "?")
	r.URL = &url.URL{Path: unescaped(raw), RawPath: raw, RawQuery: query}
	r.Header.Set(offer.HeaderPrefix, "/docs")
	if name != "" && name != "-" {
		r.Header.Set(name, "/private")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// FuzzToStaysBelow: what is passed on is below what is offered, on any kind of server.
func FuzzToStaysBelow(f *testing.F) {
	for _, p := range []string{"/..;/x", "/%2e%2e%5cx", "/%252e%252e/x", "/a/.%00./x", "/%c0%ae./x", "/a;/..%3b/x"} {
		f.Add(p)
	}
	var passed *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed = r }))
	f.Cleanup(s.Close)
	target, err := offer.ParseTarget(s.URL + "/base")
	if err != nil {
		f.Fatal(err)
	}
	h := offer.To(target)
	f.Fuzz(func(t *testing.T, p string) {
		if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, "?#") {
			return
		}
		if _, err := url.ParseRequestURI(p); err != nil {
			return
		}
		passed = nil
		ask(h, p, "")
		if passed == nil {
			return
		}
		for name, resolve := range naive {
			if got := resolve(passed); got != "/base" && !strings.HasPrefix(got, "/base/") {
				t.Errorf("%s reads %q as %q", name, passed.RequestURI, got)
			}
		}
	})
}
