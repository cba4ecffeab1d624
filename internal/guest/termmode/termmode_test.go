package termmode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/termmode"
)

func TestModes(t *testing.T) {
	for out, want := range map[string]string{
		"":                                        "",
		"text \x1b[1;31mred\x1b[0m":               "",
		"\x1b[?1049h\x1b[?2004h":                  "\x1b[?1049h\x1b[?2004h",
		"\x1b[?1000;1006h\x1b[?1000l":             "\x1b[?1006h",
		"\x1b[?25l\x1b[?7l\x1b[?25h":              "\x1b[?7l",
		"\x1b[>1u\x1b[>5u\x1b[<u":                 "\x1b[>1u",
		"\x1b[<99u\x1b[>3u\x1b[>4;2m":             "\x1b[>3u\x1b[>4;2m",
		"\x1b[>4;2m\x1b[>4m":                      "",
		"\x1b[?1049h\x1bc":                        "",
		"\x1b[?1049\x1b[?2004h":                   "\x1b[?2004h",
		"\x1b[?99999999999999h\x1b[?h\x1b[?;h":    "",
		"\x1b[?9999h":                             "",
		"\x1b]0;[?1049h\x07":                      "",
		"\x1b[?" + strings.Repeat("1;", 99) + "h": "",
	} {
		for size := range []int{1, 2, 1000} {
			var m termmode.Modes
			for rest := out; rest != ""; {
				n := min(size+1, len(rest))
				fmt.Fprint(&m, rest[:n])
				rest = rest[n:]
			}
			if got := m.String(); got != want {
				t.Errorf("%q by %d: %q, want %q", out, size, got, want)
			}
		}
	}
}

// FuzzModes: what is set is said in a bounded text of nothing but modes, which says the same when
// it is read.
func FuzzModes(f *testing.F) {
	f.Add("\x1b[?1049h\x1b[>1u\x1b[>4;2m\x1b[?25l")
	f.Fuzz(func(t *testing.T, out string) {
		var m, again termmode.Modes
		fmt.Fprint(&m, out)
		text := m.String()
		fmt.Fprint(&again, text)
		if again.String() != text || len(text) > 512 {
			t.Errorf("%q says %q, and that %q", out, text, again.String())
		}
	})
}
