package mcpgateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

// A log that is too long has its beginning and its end, and says how much lies between.
func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const most = 10_000
	l := &logFile{f: f, most: most}
	all := 0
	for i := range 10_000 {
		n, err := fmt.Fprintf(l, "line %d\n", i)
		if all += n; err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) > most || !strings.HasSuffix(string(text), fmt.Sprintf("line %d\n", i)) {
			t.Fatalf("after line %d: %d bytes, %v", i, len(text), err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	note := excerpt.Note(l.leftOut)
	if !strings.HasPrefix(string(text), "line 0\nline 1\n") || strings.Count(string(text), note) != 1 || strings.Count(string(text), "left out") != 1 ||
		len(text)-len(note)+int(l.leftOut) != all {
		t.Errorf("%d of %d bytes are there, %d left out", len(text), all, l.leftOut)
	}
}
