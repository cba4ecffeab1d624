package escape

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables into docs/threat-model.md")

// TestThreatModelHasTheRows compares the document's tables with ours.
func TestThreatModelHasTheRows(t *testing.T) {
	file := filepath.FromSlash("../../docs/threat-model.md")
	for head, table := range map[string]string{
		"## Seeded weaknesses":                     table(),
		"### What a command may mount and unshare": mayTable(),
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, got, after, err := documented(string(b), head)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, []byte(before+table+after), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(table, got); diff != "" {
			t.Errorf("docs/threat-model.md, %s (-rows +document), go test ./test/escape -run ThreatModel -update:\n%s", head, diff)
		}
	}
}

// documented cuts a document at the first table of a section.
func documented(text, head string) (before, table, after string, err error) {
	head = "\n" + head + "\n"
	at := strings.Index(text, head)
	if at < 0 {
		return "", "", "", fmt.Errorf("no section %q", strings.TrimSpace(head))
	}
	end := len(text)
	if next := strings.Index(text[at+len(head):], "\n## "); next >= 0 {
		end = at + len(head) + next
	}
	from, to := end, end
	if bar := strings.Index(text[at:end], "\n|"); bar >= 0 {
		from = at + bar + 1
		to = from
		for line := range strings.Lines(text[from:end]) {
			if !strings.HasPrefix(line, "|") {
				break
			}
			to += len(line)
		}
	}
	return text[:from], text[from:to], text[to:], nil
}
