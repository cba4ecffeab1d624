package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/sudo/wire"
)

func TestRequest(t *testing.T) {
	want := wire.Request{Dir: "/with\nlines", Args: []string{"", "-c", "a\nb"}, Env: []string{"A=1", "B=\n"}}
	head, body, _ := strings.Cut(string(want.Encode()), "\n")
	got, ok := wire.ParseRequest(body)
	if !ok || !cmp.Equal(got, want) || head != "29" {
		t.Errorf("%v, %s: %s", ok, head, cmp.Diff(want, got))
	}
	for _, body := range []string{"", "/", "/\x00", "/\x00x", "/\x00-1", "/\x002\x00one", "/\x0001\x00one", "/\x00+0"} {
		if r, ok := wire.ParseRequest(body); ok {
			t.Errorf("%q is %+v", body, r)
		}
	}
}

func TestEnd(t *testing.T) {
	for _, want := range []wire.End{{}, {Code: 255, Text: "a\nb\n"}, {Shown: true, Text: "x"}} {
		if got, ok := wire.ParseEnd(want.Encode()); !ok || got != want {
			t.Errorf("%v: %+v, want %+v", ok, got, want)
		}
	}
	for _, msg := range []string{"", "\n", "0\n", "0 \n", "0 yes\n", "256 true\n", "-1 true\n", "0 true"} {
		if e, ok := wire.ParseEnd([]byte(msg)); ok {
			t.Errorf("%q is %+v", msg, e)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add("/\x001\x00id\x00A=1")
	f.Fuzz(func(t *testing.T, body string) {
		r, ok := wire.ParseRequest(body)
		if !ok {
			return
		}
		if _, again, _ := strings.Cut(string(r.Encode()), "\n"); again != body {
			t.Errorf("%q is written as %q", body, again)
		}
	})
}
