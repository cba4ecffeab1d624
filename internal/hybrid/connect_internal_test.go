package hybrid

import (
	"fmt"
	"strings"
	"testing"
)

// What is taken for a first line is one to the byte, and not a byte behind it is read.
func FuzzReadConnect(f *testing.F) {
	for _, s := range []string{"CONNECT 5005\nrest", "CONNECT 65535\n", "CONNECT 0\n", "CONNECT 00001\n", "CONNECT 4294967296\n", "connect 1\n", "\n", "CONNECT 1", strings.Repeat("9", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := strings.NewReader(s)
		port, err := readConnect(r)
		line, _, whole := strings.Cut(s, "\n")
		if read := len(s) - r.Len(); read > maxLine+1 || whole && read > len(line)+1 {
			t.Errorf("%q: %d bytes were read", s, read)
		}
		if err == nil && (line != fmt.Sprintf("CONNECT %d", port) || port < 1 || port > 65535 || !whole) {
			t.Errorf("%q is taken for port %d", s, port)
		}
	})
}
