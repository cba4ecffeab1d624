package policy

import "bytes"

// Bounds that stop a text before a parser recurses into it, or compares each
// key of a mapping with all others.
const (
	maxBrackets = 200
	maxDashes   = 20
	maxDepth    = 20
	maxKeys     = 256
)

// tooDeep finds the first line at which a text nests too deep, going by
// brackets and by dashes alone; 0 if none does. Brackets within texts count,
// which takes nothing away from what people write.
func tooDeep(text []byte) int {
	line, depth, dashes, leading := 1, 0, 0, true
	for _, c := range text {
		switch c {
		case '\n':
			line, dashes, leading = line+1, 0, true
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		case '-', '?':
			if leading {
				dashes++
			}
		case ' ', '\t', '\r':
			continue
		}
		if depth > maxBrackets || dashes > maxDashes {
			return line
		}
		leading = leading && (c == '-' || c == '?')
	}
	return 0
}

// tooMuch finds the first line at which a YAML text has more keys in one
// mapping, or more items in all, than any policy; 0 if there is none. Lines of
// the same indentation with nothing shallower between them are one mapping,
// if they have a colon, and so is what stands between braces.
func tooMuch(text []byte) int {
	n, items := 0, 0
	keys := map[int]int{} // by indentation
	var flow braces
	for line := range bytes.Lines(text) {
		n++
		rest := bytes.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		rest = bytes.TrimSpace(rest)
		if len(rest) == 0 || rest[0] == '#' {
			continue
		}
		for deeper := range keys {
			if deeper > indent {
				delete(keys, deeper)
			}
		}
		switch {
		case rest[0] == '-':
			items++
		case rest[0] == '?' || bytes.IndexByte(rest, ':') >= 0:
			keys[indent]++
		}
		if keys[indent] > maxKeys || items > maxEntries || flow.keys(rest) > maxKeys {
			return n
		}
	}
	return 0
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
