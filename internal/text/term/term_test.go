package term_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func TestEscape(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", ""},
		{"ascii", "src/main.go", "src/main.go"},
		{"accents-and-cjk", "größe/测试/テスト", "größe/测试/テスト"},
		{"emoji-with-selector", "⚠️ done", "⚠️ done"},
		{"backslash-stays", `a\x1bb`, `a\x1bb`},
		{"colour", "a\x1b[31mred", `a\x1b[31mred`},
		{"title", "\x1b]0;owned\a", `\x1b]0;owned\x07`},
		{"newline-tab-return", "a\nb\tc\rd", `a\nb\tc\rd`},
		{"delete", "a\x7fb", `a\x7fb`},
		{"nul", "a\x00b", `a\x00b`},
		{"c1-as-utf8", "a\u009b31m", `a\u009b31m`},
		{"c1-as-byte", "a\x9b31m", `a\x9b31m`},
		{"next-line", "a\u0085b", `a\u0085b`},
		{"bidi-override", "txt.\u202eexe", `txt.\u202eexe`},
		{"bidi-isolate", "\u2066x\u2069", `\u2066x\u2069`},
		{"arabic-letter-mark", "\u061c", `\u061c`},
		{"marks", "\u200e\u200f", `\u200e\u200f`},
		{"zero-width", "a\u200bb\u200cc\u200dd\u2060e", `a\u200bb\u200cc\u200dd\u2060e`},
		{"byte-order-mark", "\ufeffa", `\ufeffa`},
		{"line-separators", "\u2028\u2029", `\u2028\u2029`},
		{"tags", "a\U000e0041", `a\U000e0041`},
		{"hidden-selectors", "a\ufe01\U000e0100", `a\ufe01\U000e0100`},
		{"hangul-filler", "a\u3164", `a\u3164`},
		{"soft-hyphen", "a\u00adb", `a\u00adb`},
		{"private-use", "\ue000", `\ue000`},
		{"overlong-escape", "\xc0\x9b", `\xc0\x9b`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"cut-rune", "a\xe4\xb8", `a\xe4\xb8`},
		{"real-replacement-rune", "a\ufffdb", "a\ufffdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := term.Escape(tt.in); got != tt.want {
				t.Errorf("Escape(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if got, want := term.Safe(tt.in), tt.in == tt.want; got != want {
				t.Errorf("Safe(%q) = %v, want %v", tt.in, got, want)
			}
		})
	}
}

func TestEscapeTextKeepsLinesAndTabs(t *testing.T) {
	got := string(term.EscapeText([]byte("a\tb\r\n\x1b[2Jc\n")))
	want := "a\tb\\r\n\\x1b[2Jc\n"
	if got != want {
		t.Errorf("EscapeText = %q, want %q", got, want)
	}
}

func TestCleanTextIsNotCopied(t *testing.T) {
	in := []byte("plain\ttext, größe\n")
	if out := term.EscapeText(in); &out[0] != &in[0] {
		t.Error("EscapeText copied text that needed no escape")
	}
	if n := testing.AllocsPerRun(100, func() { term.Escape("plain") }); n != 0 {
		t.Errorf("Escape of plain text made %v allocations, want 0", n)
	}
}

// check holds the invariants of both functions for any input.
func check(t *testing.T, in string) {
	t.Helper()
	name, text := term.Escape(in), string(term.EscapeText([]byte(in)))
	for what, out := range map[string]string{"Escape": name, "EscapeText": text} {
		if !utf8.ValidString(out) {
			t.Fatalf("%s(%q) = %q is no UTF-8", what, in, out)
		}
		for _, r := range out {
			if what == "EscapeText" && (r == '\n' || r == '\t') {
				continue
			}
			if unicode.Is(unicode.C, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) {
				t.Fatalf("%s(%q) = %q lets %U through", what, in, out, r)
			}
		}
	}
	if again := term.Escape(name); again != name {
		t.Fatalf("Escape(%q) = %q, and again %q", in, name, again)
	}
	if again := string(term.EscapeText([]byte(text))); again != text {
		t.Fatalf("EscapeText(%q) = %q, and again %q", in, text, again)
	}
	if strings.Count(text, "\n") != strings.Count(in, "\n") {
		t.Fatalf("EscapeText(%q) = %q changed the lines", in, text)
	}
}

func TestEveryRune(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		in := string(r)
		out := term.Escape(in)
		switch {
		case out != in && (len(out) < 2 || out[0] != '\\' || strings.Trim(out, `\0123456789abcdefntrxuU`) != ""):
			t.Fatalf("Escape(%q) = %q is no escape", in, out)
		case out == in && unicode.In(r, unicode.C, unicode.Zl, unicode.Zp):
			t.Fatalf("Escape lets %U through", r)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b]0;x\a", "a\u202eb", "\xff\xfe", "é\x9b", "\U000e0041"} {
		f.Add(s)
	}
	f.Fuzz(check)
}

func BenchmarkEscapeText(b *testing.B) {
	line := []byte(strings.Repeat("func main() { fmt.Println(\"größe\") }\n", 1000))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		term.EscapeText(line)
	}
}

func TestEscapeJSON(t *testing.T) {
	for in, want := range map[string]string{
		"plain \"<世界>\" 👍🏽":  `"plain \"<世界>\" 👍🏽"`,
		"\x1b]0;t\x07\n":     `"\u001b]0;t\u0007\n"`,
		"\u009b31m\x7f":      `"\u009b31m\u007f"`,
		"a\u202eb\U000e0041": `"a\u202eb\udb40\udc41"`,
	} {
		if got := string(term.EscapeJSON(encode(t, in))); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// FuzzEscapeJSON: it says the same, and all of it is to be seen.
func FuzzEscapeJSON(f *testing.F) {
	f.Add("a\u009b\x7f\U000e0041\u2028\"\\u009b")
	f.Fuzz(func(t *testing.T, s string) {
		b := encode(t, s)
		out := term.EscapeJSON(b)
		var want, got string
		if err := errors.Join(json.Unmarshal(b, &want), json.Unmarshal(out, &got)); err != nil || got != want {
			t.Errorf("%s becomes %s: %v", b, out, err)
		}
		if !term.Safe(string(out)) {
			t.Errorf("not safe: %q", out)
		}
	})
}

func encode(t *testing.T, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
