package tree_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// flat lists what a tree has, and where.
func flat(n *tree.Node, path string) (lines []string) {
	lines = append(lines, fmt.Sprintf("%s %d:%d %s %s", path, n.Line, n.Column, n.Kind, n.Text))
	for _, p := range n.Pairs {
		lines = append(lines, fmt.Sprintf("%s.%s %d:%d key", path, p.Key, p.Line, p.Column))
		lines = append(lines, flat(p.Value, path+"."+p.Key)...)
	}
	for i, item := range n.Items {
		lines = append(lines, flat(item, fmt.Sprintf("%s[%d]", path, i))...)
	}
	return lines
}

func TestPlaces(t *testing.T) {
	for name, text := range map[string]string{
		"yaml":      "a: 1\nb:\n  - x\n  - c: true\n",
		"yaml crlf": "a: 1\r\nb:\r\n  - x\r\n  - c: true\r\n",
	} {
		n, err := tree.Parse([]byte(text), "thing", 10)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(flat(n, ""), "\n")
		for _, want := range []string{".a 1:1 key", ".a 1:4 a number 1", ".b 2:1 key", ".b[0] 3:5 a text x", ".b[1] 4:5 a mapping", ".b[1].c 4:5 key", ".b[1].c 4:8 true or false true"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got)
			}
		}
	}
	n, err := tree.Parse([]byte("{\"a\" : 1,\n \"é\": [\"x\", {\"c\": true}]}"), "thing", 10)
	if err != nil {
		t.Fatal(err)
	}
	want := " 1:1 a mapping \n.a 1:2 key\n.a 1:8 a number 1\n.é 2:2 key\n.é 2:7 a list \n.é[0] 2:8 a text x\n.é[1] 2:13 a mapping \n.é[1].c 2:14 key\n.é[1].c 2:19 true or false true"
	if got := strings.Join(flat(n, ""), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestPlacesInOneLine: columns are characters, however many there are before.
func TestPlacesInOneLine(t *testing.T) {
	n, err := tree.Parse([]byte("["+strings.Repeat("\"é€😀\", ", 5000)+"\n 1]"), "thing", 10)
	if err != nil {
		t.Fatal(err)
	}
	for i, item := range n.Items[:5000] {
		if want := 2 + 7*i; item.Line != 1 || item.Column != want {
			t.Fatalf("item %d is at %d:%d, not at 1:%d", i, item.Line, item.Column, want)
		}
	}
	if last := n.Items[5000]; last.Line != 2 || last.Column != 2 {
		t.Errorf("the last one is at %d:%d", last.Line, last.Column)
	}
}

// BenchmarkOneLine is of half a megabyte in one line: each of its tokens has a place.
func BenchmarkOneLine(b *testing.B) {
	text := []byte("[" + strings.Repeat(`{"type": "regex"}, `, 27_000) + "1]")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tree.Parse(text, "thing", 10); err != nil {
			b.Fatal(err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		text, want string
		line       int
	}{
		{"a: &x 1\nb: *x", "anchors, aliases, merge keys, tags and directives are not read", 1},
		{"a: 1\n---\nb: 2", "a second document: a thing is one", 3},
		{"a: [", "neither YAML nor JSON", 1},
		{"a:\n\tb: 1\n", "a tab", 2},
		{"a:\n  b: 1\n \tc: 2\n", "a tab", 3},
		{"\xff", "the thing is not UTF-8", 0},
		{"a: 1\n2: x", "a key that is no plain text", 2},
		{strings.Repeat("[", 30) + strings.Repeat("]", 30), "nested deeper than any thing is", 1},
		{strings.Repeat("- x\n", 12), "more keys or items than any thing has", 11},
	} {
		_, err := tree.Parse([]byte(c.text), "thing", 10)
		e, ok := errors.AsType[*tree.Error](err)
		if !ok || e.Problem != c.want || e.Line != c.line {
			t.Errorf("%.20q: got %+v", c.text, e)
		}
	}
	if n, err := tree.Parse([]byte("# nothing\n"), "thing", 10); n != nil || err != nil {
		t.Errorf("a text of nothing: %v, %v", n, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: 1", `{"a": [1, null]}`, "- x\n- {y: z}", "a: |\n  text\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := tree.Parse(text, "thing", 1000)
		if n == nil || err != nil {
			return
		}
		lines := 1 + strings.Count(string(text), "\n") + strings.Count(string(text), "\r")
		for _, l := range flat(n, "") {
			if l == "" {
				t.Fatal("nothing")
			}
		}
		if n.Line < 1 || n.Line > lines {
			t.Fatalf("line %d of %d", n.Line, lines)
		}
	})
}
