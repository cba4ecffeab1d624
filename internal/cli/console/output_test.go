package console_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func TestEscapeWriter(t *testing.T) {
	for _, in := range []string{
		"plain\n", "\x1b]0;t\x07\n", "grüße 世界 👍🏽\n", "\xff\xfe", "end in the middle: \xe4\xb8", "\xe4\xb8\x1b", "\xf0\x9f\x91", "\xf0\xff\x80", "", "\u202eevil",
	} {
		want := string(term.EscapeText([]byte(in)))
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in)),
		} {
			var got bytes.Buffer
			w := console.Escaped(&got)
			buf := make([]byte, 4)
			if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf); err != nil {
				t.Fatal(err)
			}
			console.Flush(w)
			if got.String() != want {
				t.Errorf("%q in %s: got %q, want %q", in, name, got.String(), want)
			}
		}
	}
}

func FuzzEscapeWriter(f *testing.F) {
	f.Add([]byte("a\xe4\xb8\x96\x1b[0m"), 1)
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		at = min(max(at, 0), len(in))
		var got bytes.Buffer
		w := console.Escaped(&got)
		for _, p := range [][]byte{in[:at], in[at:]} {
			if n, err := w.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		console.Flush(w)
		if want := term.EscapeText(in); !bytes.Equal(got.Bytes(), want) {
			t.Errorf("got %q, want %q", got.Bytes(), want)
		}
	})
}

// TestWriteJSON: names from inside do nothing to a terminal, and a program reads them as they are.
func TestWriteJSON(t *testing.T) {
	var out bytes.Buffer
	c := &console.Console{Stdout: &out}
	if err := c.WriteJSON(map[string]string{"name": "a\u009b2Jb<c>\u202e"}); err != nil {
		t.Fatal(err)
	}
	if err := console.WriteJSONLine(&out, "\u009b"); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "{\n  \"name\": \"a\\u009b2Jb<c>\\u202e\"\n}\n\"\\u009b\"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
