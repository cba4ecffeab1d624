package shell_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func TestQuote(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"none", nil, ""},
		{"empty", []string{""}, "''"},
		{"plain", []string{"a", "b c"}, "'a' 'b c'"},
		{"quotes", []string{"it's", "'"}, `'it'\''s' ''\'''`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := shell.Quote(tt.args...); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A shell reads what was written.
func TestQuoteRead(t *testing.T) {
	args := []string{"", " ", "'", "''", `\`, `"$(exit 1)"`, "`x`", "$HOME", "~", "*", "a\nb", "!!", "é"}
	out, err := exec.Command("/bin/sh", "-c", `printf '%s\0' `+shell.Quote(args...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, args) {
		t.Errorf("got %q, want %q", got, args)
	}
}

func TestWithPath(t *testing.T) {
	if got := shell.WithPath("make", map[string]string{"HOME": "/"}); got != "make" {
		t.Errorf("without a PATH: %q", got)
	}
	if got := shell.WithPath("make", map[string]string{"PATH": "/a b:/c"}); got != "export PATH='/a b:/c'\nmake" {
		t.Errorf("with one: %q", got)
	}
}

func TestWord(t *testing.T) {
	for in, want := range map[string]string{"a/b.c": "a/b.c", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "~": "'~'"} {
		if got := shell.Word(in); got != want {
			t.Errorf("Word(%q) = %s, want %s", in, got, want)
		}
	}
}
