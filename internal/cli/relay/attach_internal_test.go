package relay

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/screen"
)

func newPainter(until uint64) (*painter, *strings.Builder, *int) {
	var out strings.Builder
	redrawn := 0
	return &painter{
		out: &out, screen: screen.New(20, 5), size: func() console.Size { return console.Size{Cols: 20, Rows: 5} },
		until: until, begun: time.Now(), painted: func() { redrawn++ },
	}, &out, &redrawn
}

// What was written before becomes one picture; what comes after is passed on as it is.
func TestPainter(t *testing.T) {
	p, out, redrawn := newPainter(11)
	write := func(text string) {
		if n, err := io.WriteString(p, text); err != nil || n != len(text) {
			t.Fatalf("%q: %d, %v", text, n, err)
		}
	}
	write("\x1b]0;x\x07")
	if out.Len() > 0 {
		t.Errorf("painted early: %q", out)
	}
	write("befor" + "\x1b]0;live\x07")
	if s := out.String(); *redrawn != 1 || strings.Contains(s, "\x1b]0;x") || !strings.Contains(s, "befor") || !strings.HasSuffix(s, "\x1b]0;live\x07") {
		t.Errorf("painted %d times: %q", *redrawn, s)
	}
	p.skip(1000)
	if *redrawn != 2 {
		t.Errorf("after a loss the command was asked to draw %d times", *redrawn)
	}
}

// What never comes, as a guest can have it, is not waited for without an end.
func TestPainterImpatient(t *testing.T) {
	p, out, _ := newPainter(1 << 60)
	_, _ = io.WriteString(p, "so far")
	if out.Len() > 0 {
		t.Errorf("painted early: %q", out)
	}
	p.begun = p.begun.Add(-picturePatience)
	_, _ = io.WriteString(p, "!")
	if !strings.Contains(out.String(), "so far!") {
		t.Errorf("painted %q", out)
	}
}
