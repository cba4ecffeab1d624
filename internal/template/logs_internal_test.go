package template

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// Whatever a build prints, in whatever pieces, its log has whole lines of bounded
// length that no terminal heeds.
func FuzzLog(f *testing.F) {
	f.Add("one\ntwo", 2)
	f.Add("\x1b[2Jcleared\r\n\xff\x00", 1)
	f.Add(strings.Repeat("x", 3*maxLogLine), 1000)
	l := logs{dir: f.TempDir(), now: time.Now}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		id := newUUID()
		j, err := l.open(id)
		if err != nil {
			t.Fatal(err)
		}
		for piece = max(1, piece%maxLogLine); len(text) > 0; text = text[min(piece, len(text)):] {
			j.output([]byte(text[:min(piece, len(text))]))
		}
		j.flush()
		j.say(levelInfo, "the end")
		j.close()
		all, err := l.read(id)
		if err != nil || len(all) == 0 || all[len(all)-1].Text != "the end" {
			t.Fatalf("%d entries, %v", len(all), err)
		}
		for _, e := range all {
			// Each byte may be escaped, as \x00.
			if len(e.Text) > 8*2*maxLogLine || strings.ContainsFunc(e.Text, unicode.IsControl) {
				t.Errorf("%.200q", e.Text)
			}
		}
	})
}

// A long log has how the build began and how it ended, and says how much lies between.
func TestLongLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines int
		cut   bool
	}{{"fits", 100, false}, {"long", 60_000, true}} {
		t.Run(tt.name, func(t *testing.T) {
			l := logs{dir: t.TempDir(), now: time.Now}
			j, err := l.open("b")
			if err != nil {
				t.Fatal(err)
			}
			for i := range tt.lines {
				j.say(levelInfo, fmt.Sprint("line ", i))
			}
			j.say(levelError, "FATAL")
			j.settle()
			j.say(levelInfo, "the end")
			j.close()
			all, err := l.read("b")
			if err != nil || len(all) < 3 {
				t.Fatalf("%d entries, %v", len(all), err)
			}
			if all[0].Text != "line 0" || all[len(all)-2].Text != "FATAL" || all[len(all)-1].Text != "the end" {
				t.Errorf("it begins with %q and ends with %q, %q", all[0].Text, all[len(all)-2].Text, all[len(all)-1].Text)
			}
			leftOut := tt.lines + 2 - len(all)
			if tt.cut {
				leftOut++ // the note is an entry, too
			}
			note := fmt.Sprintf("... [%d lines left out] ...", leftOut)
			said := slices.ContainsFunc(all, func(e Entry) bool { return e.Text == note })
			if said != tt.cut || tt.cut != (leftOut > 0) {
				t.Errorf("%d of %d are there; said %q: %v", len(all), tt.lines+2, note, said)
			}
			if fi, err := os.Stat(l.path("b")); err != nil || fi.Size() > maxLogBytes+1<<10 {
				t.Errorf("the file: %v, %v", fi.Size(), err)
			}
		})
	}
}
