package guestcall

import (
	"bytes"
	"strings"
	"testing"
)

func TestKept(t *testing.T) {
	var k Kept
	k.add(0, []byte("hello "), 8)
	k.add(6, []byte("world"), 8)
	k.add(11, bytes.Repeat([]byte("x"), 1000), 8)
	k.count(5000) // what was dropped
	if string(k.Data) != "hello wo" || k.Bytes != 5000 {
		t.Errorf("kept %q of %d", k.Data, k.Bytes)
	}
}

// A guest that lies about offsets gets nothing for it.
func FuzzKept(f *testing.F) {
	f.Add(uint64(0), []byte("a"), uint64(1), []byte("b"))
	f.Add(^uint64(0), []byte("a"), uint64(1)<<63, []byte("b"))
	f.Fuzz(func(t *testing.T, at1 uint64, b1 []byte, at2 uint64, b2 []byte) {
		const limit = 16
		var k Kept
		k.add(at1, b1, limit)
		before := k.Bytes
		k.add(at2, b2, limit)
		if len(k.Data) > limit || k.Bytes < before || k.Bytes < 0 || k.Bytes > maxOutput || int64(len(k.Data)) > k.Bytes {
			t.Errorf("kept %d of %d", len(k.Data), k.Bytes)
		}
	})
}

func TestScript(t *testing.T) {
	env := map[string]string{"PATH": "/s3cret", "A": "s3cret"}
	for _, text := range []string{"echo x", "'; rm -rf /", strings.Repeat("x", maxScript+1)} {
		cmd, input := Script(text, "/it's -n $(x)", env)
		line := strings.Join(cmd.GetArgv(), "\x00")
		if strings.Contains(line, "s3cret") || cmd.GetEnv()["A"] != "s3cret" {
			t.Errorf("argv %q", line)
		}
		if cmd.GetArgv()[4] != "/it's -n $(x)" {
			t.Errorf("argv %q has another directory", line)
		}
		if long := len(text) > maxScript; long != cmd.GetStdin() || long != (string(input) == text) || long == strings.Contains(line, text) {
			t.Errorf("a text of %d bytes: input %v, argv of %d bytes", len(text), cmd.GetStdin(), len(line))
		}
	}
}
