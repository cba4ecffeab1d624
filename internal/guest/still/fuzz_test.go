package still

import (
	"testing"
	"unicode"
)

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) b (c)) T 1 12 12 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4711 1 2 3"))
	f.Add([]byte("1 (sh) S"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parseStat(raw)
		if err == nil && !unicode.IsLetter(rune(p.state)) {
			t.Errorf("no state in %q", raw)
		}
	})
}
