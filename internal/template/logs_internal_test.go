package template

import (
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
