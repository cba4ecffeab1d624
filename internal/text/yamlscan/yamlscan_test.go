package yamlscan_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/yamlscan"
)

// Each of these took the parser seconds, or gigabytes, for 60,000 bytes.
func TestWhatIsNotParsed(t *testing.T) {
	for name, text := range map[string]string{
		"brackets":           strings.Repeat("[", 60000),
		"closed-brackets":    strings.Repeat("[", 30000) + strings.Repeat("]", 30000),
		"braces":             strings.Repeat("{a: ", 15000),
		"dashes":             strings.Repeat("- ", 30000),
		"dashes-in-brackets": "[" + strings.Repeat("- ", 30000),
		"dashes-in-braces":   "{a: {a: " + strings.Repeat("- - ", 15000),
		"dashes-and-tags":    strings.Repeat("!t - ", 12000),
		"lines-in-brackets":  "[" + strings.Repeat("-\n", 30000),
		"questions":          strings.Repeat("? ]\"\t", 12000),
		"merges":             strings.Repeat("<<", 30000),
		"keys":               strings.Repeat("a: b\n", 12000),
		"keys-of-old":        strings.Repeat("a: b\r", 12000),
		"keys-with-dashes":   strings.Repeat("-a: |\n", 10000),
		"keys-and-comments":  strings.Repeat("a: b #x\n", 8000),
		"keys-in-braces":     "{" + strings.Repeat("a: b,", 12000),
		"items":              strings.Repeat("- #\n", 15000),
		"documents":          strings.Repeat("}\n---\n", 10000),
		"ends-of-documents":  strings.Repeat("]...\n...\n", 6000),
		"quotes-and-tabs":    strings.Repeat("\"\t", 30000),
	} {
		if yamlscan.Deep([]byte(text)) == 0 && yamlscan.Many([]byte(text), 1000) == 0 {
			t.Errorf("%s are parsed", name)
		}
	}
}

func TestWhatPeopleWrite(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":         "",
		"a-skill":         "name: pdf\r\ndescription: >-\r\n  Read - and write - PDFs [of all kinds. Why? Because.\r\n  - one\r\n  - two\r\nallowed-tools: [a, b]\r\n",
		"a-list":          strings.Repeat("- one - two - three ? four\n", 900),
		"an-open-bracket": "description: |\n  [ is open\n" + strings.Repeat("  - an item\n", 100),
		"tabs":            strings.Repeat("# a\tb\n", 1000),
		"a-conflict":      "a: |\n  <<<<<<< HEAD\n  x\n",
		"nested":          strings.Repeat("- ", 10) + strings.Repeat("[", 100) + strings.Repeat("]", 100),
	} {
		if line := yamlscan.Deep([]byte(text)); line > 0 {
			t.Errorf("%s is too deep in line %d", name, line)
		}
		if line := yamlscan.Many([]byte(text), 1000); line > 0 {
			t.Errorf("%s is too much in line %d", name, line)
		}
	}
	if got := yamlscan.Deep([]byte("a: b\r\n\r\n" + strings.Repeat("[", 1000))); got != 3 {
		t.Errorf("it is too deep in line %d, want 3", got)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("a: [b]\r\n- ? c"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := 1 + strings.Count(string(text), "\n") + strings.Count(string(text), "\r")
		if n := yamlscan.Deep(text); n < 0 || n > lines {
			t.Errorf("Deep = %d of %d", n, lines)
		}
		if n := yamlscan.Many(text, 10); n < 0 || n > lines {
			t.Errorf("Many = %d of %d", n, lines)
		}
	})
}
