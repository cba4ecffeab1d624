package console_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// TestTablePadding holds that one long cell of a guest's does not make every
// row as long.
func TestTablePadding(t *testing.T) {
	long := strings.Repeat("x", 3800)
	tests := []struct {
		name string
		rows [][]string
		want string
	}{
		{"aligned", [][]string{{"a", "b", "c"}, {"aaa", "", "c"}}, "a    b  c\naaa  -  c\n"},
		{"long-in-the-middle", [][]string{{"A", "b", "held"}, {"A", long, "held"}, {"A", "bbb", "held"}}, "A  b    held\nA  " + long + "  held\nA  bbb  held\n"},
		{"long-at-the-end", [][]string{{"a", long}, {"b", "c"}}, "a  " + long + "\nb  c\n"},
		{"long-alone", [][]string{{long, "b"}, {long, "b"}}, long + "  b\n" + long + "  b\n"},
		{"escaped", [][]string{{"a\x1b[2J", "b"}}, `a\x1b[2J  b` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := table(tt.rows); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	var rows [][]string
	for range 3000 {
		rows = append(rows, []string{"A", "name", "held"})
	}
	rows[7][1] = long
	if got, most := len(table(rows)), 3000*20+len(long); got > most {
		t.Errorf("%d bytes, want %d at most", got, most)
	}
}

func TestElide(t *testing.T) {
	for _, tt := range []struct {
		name, in, want string
		n              int
	}{
		{"short", "abc", "abc", 3},
		{"long", "abcdefghij", "ab…hij", 6},
		{"not-ascii", "äöüäöü", "ä…öü", 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := console.Elide(tt.in, tt.n); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// table is what a table of these rows looks like.
func table(rows [][]string) string {
	var t console.Table
	for _, r := range rows {
		t.Row(append([]string{}, r...)...)
	}
	var b strings.Builder
	_ = t.Write(&b) // it never fails
	return b.String()
}

func TestWords(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "less than a second", time.Second: "1 second", 119 * time.Second: "1 minute", 2 * time.Minute: "2 minutes",
		90 * time.Minute: "1 hour", 47 * time.Hour: "1 day", 48 * time.Hour: "2 days",
	} {
		if got := console.Words(in); got != want {
			t.Errorf("Words(%v) = %q, want %q", in, got, want)
		}
	}
}
