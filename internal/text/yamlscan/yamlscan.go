// Package yamlscan looks at YAML that strangers wrote before a parser does,
// which recurses into it, keeps a path for each of its brackets, and compares
// each key of a mapping with all others: sixty thousand brackets take gigabytes
// there. It goes by what such a text has to look like, without reading it; what
// it lets pass may still be no YAML.
package yamlscan

import "bytes"

const (
	maxBrackets = 200
	maxDashes   = 20
	maxKeys     = 256

	maxDocuments = 64
	maxTabs      = 2000
)

// Deep finds the first line at which a text nests too deep, going by brackets
// and by dashes that stand alone, or runs on in a way that no text does; 0 if
// none does. Brackets and dashes within texts count, which takes nothing away
// from what people write.
func Deep(text []byte) int {
	line, depth, dashes, asked := 1, 0, 0, 0
	last := byte(' ')
	for i, c := range text {
		switch {
		case c == '\n' || c == '\r':
			if c == '\n' || !bytes.HasPrefix(text[i+1:], []byte("\n")) {
				line++
			}
			asked = 0
			if depth == 0 { // between brackets lines are nothing
				dashes = 0
			}
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth = max(0, depth-1)
		case (c == '-' || c == '?') && alone(text, i, last):
			dashes++
			if c == '?' {
				asked++
			}
		case word(c) && blank(last): // a text begins, in which a dash is one
			dashes = 0
		}
		if depth > maxBrackets || dashes > maxDashes || asked > maxKeys || c == '<' && bytes.HasPrefix(text[i:], tooManyMerges) {
			return line
		}
		last = c
	}
	return 0
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func word(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// alone reports whether the character at i, after last, may be one of YAML's.
func alone(text []byte, i int, last byte) bool {
	return (blank(last) || bytes.IndexByte([]byte("[{,"), last) >= 0) && (i+1 == len(text) || blank(text[i+1]))
}

// tooManyMerges is what a scanner begins to read anew with each of them.
var tooManyMerges = bytes.Repeat([]byte("<"), 64)

// Many finds the first line at which a YAML text has more than 256 keys in one
// mapping, more than so many items in all, or more documents or tabs than any
// has that is meant to be read; 0 if there is none. Lines of
// the same indentation with nothing shallower between them are one mapping,
// if they have a colon, and so is what stands between braces.
func Many(text []byte, most int) int {
	n, items, documents := 0, 0, 0
	tabs := 0             // each of which has the parser look back
	keys := map[int]int{} // by indentation
	var flow braces
	for line := range bytes.Lines(unixLines(text)) {
		n++
		tabs += bytes.Count(line, []byte("\t"))
		rest := bytes.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		rest = bytes.TrimSpace(rest)
		if tabs > maxTabs {
			return n
		}
		if len(rest) == 0 || rest[0] == '#' {
			continue
		}
		for deeper := range keys {
			if deeper > indent {
				delete(keys, deeper)
			}
		}
		switch {
		case bytes.HasPrefix(rest, []byte("---")), bytes.HasPrefix(rest, []byte("...")):
			documents++
		case rest[0] == '-' && alone(rest, 0, ' '):
			items++
		case rest[0] == '?' || bytes.IndexByte(rest, ':') >= 0:
			keys[indent]++
		}
		if keys[indent] > maxKeys || items > most || flow.keys(rest) > maxKeys || documents > maxDocuments {
			return n
		}
	}
	return 0
}

// unixLines is text with its lines ended in one way: a carriage return alone
// ends one too.
func unixLines(text []byte) []byte {
	if bytes.IndexByte(text, '\r') < 0 {
		return text
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
}

// braces counts the keys of mappings between braces.
type braces []struct {
	mapping bool
	commas  int
}

// keys reads on, and returns the most that a mapping has.
func (b *braces) keys(line []byte) (most int) {
	for _, c := range line {
		last := len(*b) - 1
		switch c {
		case '{', '[':
			*b = append(*b, struct {
				mapping bool
				commas  int
			}{mapping: c == '{'})
		case '}', ']':
			*b = (*b)[:max(0, last)]
		case ',':
			if last >= 0 && (*b)[last].mapping {
				(*b)[last].commas++
				most = max(most, (*b)[last].commas)
			}
		}
	}
	return most
}
