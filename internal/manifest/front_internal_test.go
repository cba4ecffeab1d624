package manifest

import (
	"bytes"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		text, front, body string
		ok                bool
	}{
		{"---\na: 1\n---\nbody\n", "\na: 1\n", "body\n", true},
		{"\ufeff---\r\na: 1\r\n---\r\nbody", "\na: 1\r\n", "body", true},
		{"---\n---", "\n", "", true},
		{"--- \na: |\n  ---\n---\t\n", "\na: |\n  ---\n", "", true},
		{"---\na: 1\n", "", "", false},
		{"----\na: 1\n---\n", "", "", false},
		{" ---\n---\n", "", "", false},
		{"", "", "", false},
		{"---", "", "", false},
	} {
		front, body, _, ok := split([]byte(c.text))
		if string(front) != c.front || string(body) != c.body || ok != c.ok {
			t.Errorf("%q: %q, %q, %v", c.text, front, body, ok)
		}
	}
}

// FuzzFrontMatter: whatever a repository ships becomes an agent or a mistake with a place
// in the text, and no more of it is read than was written.
func FuzzFrontMatter(f *testing.F) {
	for _, s := range []string{
		"---\nbottle: b\n---\nDo it.\n", "---\r\nbottle: b\r\n---\r\nDo it.", "---\n{\"bottle\": \"b\"}\n---\n", "---\nfiles: [{path: ~/x, content: |\n  a}]\n---\n",
		"---\npolicy:\n  rules:\n    - hosts: [a]\n---\n", "---\nlimits: {cpus: 1e3}\n---\n", "---\n- a\n---\n", "---\n\n---\n\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > maxFile {
			return
		}
		lines := 2 + bytes.Count(b, []byte("\n")) + bytes.Count(b, []byte("\r"))
		for _, kind := range []func(p *problems) map[string]Place{
			func(p *problems) map[string]Place { return placesOf(parse[Agent]("a.md", b, ofRepository, p)) },
			func(p *problems) map[string]Place { return placesOf(parse[Bottle]("a.md", b, ofUser, p)) },
		} {
			p := &problems{}
			places := kind(p)
			for path, at := range places {
				if at.Line < 1 || at.Line > lines {
					t.Fatalf("%q is in line %d of %d", path, at.Line, lines)
				}
			}
			for _, err := range p.list {
				if e, ok := err.(*Error); !ok || e.Line > lines || strings.ContainsAny(e.Error(), "\x00\x1b") { //nolint:errorlint // they are added as they are
					t.Fatalf("%#v", err)
				}
			}
			if places == nil && len(p.list) == 0 {
				t.Fatal("neither an agent nor a mistake")
			}
		}
	})
}

func placesOf[T any](s *said[T]) map[string]Place {
	if s == nil {
		return nil
	}
	return s.places
}
