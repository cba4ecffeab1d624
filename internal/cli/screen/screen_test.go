package screen_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"

	"github.com/carboy-sandbox/carboy/internal/cli/screen"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// seen is what a terminal shows.
type seen struct {
	text   string
	x, y   int
	alt    bool
	hidden bool
	above  int
}

// look writes texts on a terminal of that size, and reads it.
func look(cols, rows int, texts ...string) seen {
	e := vt.NewEmulator(cols, rows)
	for _, text := range texts {
		_, _ = e.WriteString(text) // never fails
	}
	lines := strings.Split(e.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " \r")
	}
	at := e.CursorPosition()
	return seen{strings.TrimRight(strings.Join(lines, "\n"), "\n"), at.X, at.Y, e.IsAltScreen(), e.CursorHidden(), e.ScrollbackLen()}
}

// A picture shows on another terminal what the first one did, wherever that had its cursor,
// and whatever that one showed before.
func TestPicture(t *testing.T) {
	var long strings.Builder
	for i := range 40 {
		fmt.Fprintf(&long, "line %d\r\n", i)
	}
	for name, out := range map[string]string{
		"empty":       "",
		"text":        "one\r\ntwo",
		"coloured":    "\x1b[1;31mred\x1b[0m plain \x1b[48;2;1;2;3m rgb \x1b[0m",
		"moved":       "\x1b[5;10Hhere\x1b[2;3H",
		"full-screen": "shell\r\n\x1b[?1049h\x1b[2J\x1b[1;1Htop\x1b[10;1Hbottom\x1b[4;4H\x1b[?25l",
		"left again":  "shell\r\n\x1b[?1049h\x1b[2Jgone\x1b[?1049l$ ",
		"scrolled":    long.String() + "$ ",
		"wide":        "漢字 x é 👩‍👩‍👧 |",
		"a region":    "\x1b[2;5r\x1b[5;1Ha\r\nb\r\nc",
	} {
		t.Run(name, func(t *testing.T) {
			s := screen.New(40, 10)
			fmt.Fprint(s, out)
			want := look(40, 10, out)
			got := look(40, 10, "what was there\r\n$ carboy attach web\r\n", s.Picture(40, 10))
			want.above, got.above = 0, 0
			if got != want {
				t.Errorf("%q\n%+v, want\n%+v", s.Picture(40, 10), got, want)
			}
			// It goes on alike.
			const more = "\r\nmore \x1b[32mand more\x1b[0m\x1b[3;3Hx"
			got, want = look(40, 10, s.Picture(40, 10), more), look(40, 10, out, more)
			want.above, got.above = 0, 0
			if got != want {
				t.Errorf("and more: %+v, want\n%+v", got, want)
			}
		})
	}
}

func TestPictureHasHistory(t *testing.T) {
	s := screen.New(20, 5)
	for i := range 12 {
		fmt.Fprintf(s, "line %d\r\n", i)
	}
	got := look(20, 5, "mine\r\n", s.Picture(20, 5))
	if got.above < 8 || !strings.HasPrefix(got.text, "line 8\n") {
		t.Errorf("%+v", got)
	}
}

// On a smaller terminal the part around the cursor is seen.
func TestPictureSmaller(t *testing.T) {
	for name, c := range map[string]struct {
		out, want string
		y         int
	}{
		"main": {"one\r\ntwo\r\nthree\r\nfour\r\nfive, which is long", "three\nfour\nfive, whic", 2},
		"alt":  {"\x1b[?1049h\x1b[2J\x1b[1;1Hone\x1b[5;1Hfive\x1b[8;1Height\x1b[5;2H", "\n\nfive", 2},
		"top":  {"\x1b[?1049h\x1b[2J\x1b[1;1Hone\x1b[8;1Height\x1b[1;2H", "one", 0},
	} {
		s := screen.New(30, 8)
		fmt.Fprint(s, c.out)
		if got := look(10, 3, s.Picture(10, 3)); got.text != c.want || got.y != c.y {
			t.Errorf("%s: %+v, want %q at %d", name, got, c.want, c.y)
		}
	}
}

// Modes come along, and go when the terminal is given back.
func TestModes(t *testing.T) {
	s := screen.New(80, 24)
	fmt.Fprint(s, "\x1b[?1000;1006h\x1b[?2004h\x1b[?1h\x1b[?7l\x1b[>1u\x1b[>4;2m\x1b[6 q\x1b[?1003h\x1b[?1003l")
	picture := s.Picture(80, 24)
	for _, want := range []string{"\x1b[?1000h", "\x1b[?1006h", "\x1b[?2004h", "\x1b[?1h", "\x1b[?7l", "\x1b[>1u", "\x1b[>4;2m", "\x1b[6 q"} {
		if !strings.Contains(picture, want) {
			t.Errorf("%q is not in %q", want, picture)
		}
	}
	if strings.Contains(picture, "1003") {
		t.Errorf("what was set and reset is in %q", picture)
	}
	undo := s.Undo()
	for _, want := range []string{"\x1b[?1000l", "\x1b[?2004l", "\x1b[?1l", "\x1b[?7h", "\x1b[<", "\x1b[>4;0m", "\x1b[?25h"} {
		if !strings.Contains(undo, want) {
			t.Errorf("%q is not in %q", want, undo)
		}
	}
	if got := look(80, 24, "$ shell\r\n", "\x1b[?1049h", undo); got.alt && !strings.Contains(undo, "1049l") {
		t.Logf("a main screen's: %+v", got)
	}
}

// harmless is all that a picture may have beside text: colours, places, modes.
var harmless = regexp.MustCompile("\x1b\\[[0-9;:]*[mH]|\x1b\\[2J|\x1b\\[\\?[0-9]+[hl]|\x1b\\[>[0-9;]*[um]|\x1b\\[[0-9]+;[0-9]+r|\x1b\\[[0-9] q|[\r\n]")

// Nothing that does something beside drawing gets from what was kept to the terminal.
func TestHostile(t *testing.T) {
	for name, out := range map[string]string{
		"clipboard": "\x1b]52;c;ZXZpbA==\x07x", "clipboard-st": "\x1b]52;c;ZXZpbA==\x1b\\", "title": "\x1b]0;evil\x07", "icon": "\x1b]1;evil\x07",
		"link": "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "palette": "\x1b]4;1;rgb:00/00/00\x07", "notify": "\x1b]9;evil\x07\x1b]777;notify;a;b\x07",
		"image": "\x1b_Gf=100;AAAA\x1b\\", "file": "\x1b]1337;File=inline=1:AAAA\x07", "sixel": "\x1bPq#0\x1b\\", "window": "\x1b[8;1;1t\x1b[3;0;0t", "print": "\x1b[5i",
		"query": "\x1b[c\x1b[6n\x1b[>q\x1bP+q544e\x1b\\\x05", "c1": "\xc2\x9b6n\xc2\x9d0;x\xc2\x9c", "raw-c1": "\x9d0;x\x9c", "keys": "\x1b[?1;2;3;9999h\x1b[20h",
		"reset": "\x1bc", "combining": "a\u0301\u200d\u202e\u0007", "in a mark": "e\u0301\x1b]0;x\x07\u0301",
	} {
		s := screen.New(40, 10)
		fmt.Fprint(s, out)
		for _, shown := range []string{s.Picture(40, 10), s.Text(), s.Undo()} {
			left := harmless.ReplaceAllString(shown, "")
			if strings.ContainsFunc(left, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) || strings.Contains(left, "evil.example") {
				t.Errorf("%s: %q", name, shown)
			}
		}
	}
}

// What asks for endless work gets none of it.
func TestBounded(t *testing.T) {
	for name, out := range map[string]string{
		"repeat": "x\x1b[2147483647b", "insert": "\x1b[2147483647L", "scroll": "\x1b[2147483647S", "tabs": "\x1b[2147483647I", "delete": "\x1b[999999999M",
		"lines": strings.Repeat("\n", 1<<18), "long": strings.Repeat("x", 1<<18), "string": "\x1b]0;" + strings.Repeat("x", 1<<20),
	} {
		began := time.Now()
		s := screen.New(1<<20, 1<<20)
		fmt.Fprint(s, out)
		_ = s.Picture(1<<20, 1<<20)
		if took := time.Since(began); took > patience.For(20*time.Second) {
			t.Errorf("%s took %s", name, took)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for name, line := range map[string]string{"short": "\r\n", "lines": "\x1b[32m" + strings.Repeat("word ", 10) + "\x1b[0m\r\n"} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(line, 1<<20/len(line))
			for b.Loop() {
				s := screen.New(120, 40)
				fmt.Fprint(s, text)
			}
		})
	}
}

// FuzzPicture: whatever was written, a picture is harmless, and made.
func FuzzPicture(f *testing.F) {
	for _, seed := range []string{"", "a\r\nb", "\x1b[?1049h\x1b[31mx", "\x1b]52;c;eA==\x07", "漢\x1b[1G\x1b[2Px", "\x1b[3;1r\x1b[99;99H\x1b[>1u\x1b[<9u", "\xff\xfe\x1b[", "\x1b[38:2:1:2:3mx"} {
		f.Add(seed, 20, 5)
	}
	f.Fuzz(func(t *testing.T, out string, cols, rows int) {
		s := screen.New(20, 5)
		fmt.Fprint(s, out)
		for _, shown := range []string{s.Picture(cols, rows), s.Text()} {
			if left := harmless.ReplaceAllString(shown, ""); strings.ContainsFunc(left, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
				t.Errorf("%q becomes %q", out, shown)
			}
		}
		s.Resize(cols, rows)
		fmt.Fprint(s, out)
		_ = s.Undo()
	})
}
