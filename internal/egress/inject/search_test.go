package inject_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"mime/quotedprintable"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
)

const needle = `Zx9+q/T7=k"&<w m`

// spellings are what the search must see through.
func spellings(text string) map[string]string {
	j, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	percent, unicode, entities := "", "", ""
	mixed, printable, zeros, zerosHex, bare := "", "", "", "", ""
	for i, c := range []byte(text) {
		mixed += fmt.Sprintf([]string{"%%%02x", "%%%02X"}[i&1], c)
		printable += fmt.Sprintf([]string{"=%02X", "=%02x"}[i&1], c)
		zeros += fmt.Sprintf("&#%07d;", c)
		zerosHex += fmt.Sprintf("&#X%020x;", c)
		bare += fmt.Sprintf("&#x%x&#", c)[:len(fmt.Sprintf("&#x%x", c))]
		percent += fmt.Sprintf("%%%02x", c)
		unicode += fmt.Sprintf(`\u%04X`, c)
		entities += fmt.Sprintf("&#%d;", c)
	}
	wide := binary.LittleEndian.AppendUint16(nil, 0xfeff)
	for _, c := range utf16.Encode([]rune(text)) {
		wide = binary.LittleEndian.AppendUint16(wide, c)
	}
	std := base64.StdEncoding.EncodeToString
	s := map[string]string{
		"plain":          text,
		"percent":        url.QueryEscape(text),
		"path":           url.PathEscape(text),
		"percent-all":    percent,
		"percent-upper":  strings.ToUpper(percent),
		"json":           string(j),
		"json-slashes":   strings.ReplaceAll(string(j), "/", `\/`),
		"json-all":       unicode,
		"html":           html.EscapeString(text),
		"html-all":       entities,
		"hex":            hex.EncodeToString([]byte(text)),
		"hex-upper":      strings.ToUpper(hex.EncodeToString([]byte(text))),
		"utf-16":         string(wide),
		"base64-0":       std([]byte(text + "....")),
		"base64-1":       std([]byte("a" + text + "...")),
		"base64-2":       std([]byte("ab" + text + "..")),
		"base64-url":     base64.URLEncoding.EncodeToString([]byte("ab" + text + "..")),
		"base64-percent": url.QueryEscape(std([]byte("user:" + text))),
		"quoted":         text[:7] + "=\r\n" + text[7:],
		"percent-mixed":  mixed,
		"printable":      quotedPrintable(text),
		"printable-all":  printable,
		"html-zeros":     zeros,
		"html-zeros-hex": zerosHex,
		"html-bare":      bare + ".",
		"html-named":     strings.NewReplacer("+", "&plus;", "/", "&sol;", "=", "&equals;", "&", "&amp;", "_", "&lowbar;", "<", "&lt;").Replace(text),
	}
	wrapped := ""
	for line := range slices.Chunk([]byte(std([]byte("ab"+text+".."))), 5) {
		wrapped += string(line) + "\r\n"
	}
	s["base64-wrapped"] = wrapped
	s["base64-wrapped-json"] = strings.ReplaceAll(wrapped, "\r\n", `\n`)
	return s
}

// quotedPrintable is text as mail has it.
func quotedPrintable(text string) string {
	var b strings.Builder
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return strings.NewReplacer("k", "=6B", "+", "=2b").Replace(b.String())
}

func TestSearchSeesSpellings(t *testing.T) {
	for name, s := range spellings(needle) {
		t.Run(name, func(t *testing.T) {
			text := []byte("before % \\ & = " + s + " after")
			if hit, _, _ := inject.Find([]string{needle}, false, text); !hit {
				t.Errorf("%q is not found", text)
			}
			if hit, _, _ := inject.Find([]string{needle}, false, []byte(s), nil); !hit {
				t.Errorf("%q at the end of a stream is not found", s)
			}
			one := slices.Collect(slices.Chunk(text, 1))
			if hit, passed, _ := inject.Find([]string{needle}, false, one...); !hit || passed > len(text)-len(" after")-1 {
				t.Errorf("%q byte by byte: found: %v, after %d of %d bytes were passed on", text, hit, passed, len(text))
			}
			// The same, with one character of it different, is let through.
			other := bytes.Replace(text, []byte(s), []byte(spellings("Zx9+q/T8=k\"&<w m")[name]), 1)
			if hit, passed, _ := inject.Find([]string{needle}, false, other); hit || passed != len(other) {
				t.Errorf("%q: found: %v, %d of %d bytes passed on", other, hit, passed, len(other))
			}
		})
	}
}

// TestSearchNeverPassesMuch feeds a value byte by byte: when it is refused, at
// most a quarter has gone on.
func TestSearchNeverPassesMuch(t *testing.T) {
	value := "sk-live-0123456789abcdefghijklmnopqrstuv"
	for name, s := range spellings(value) {
		one := slices.Collect(slices.Chunk([]byte(s), 1))
		hit, passed, _ := inject.Find([]string{value}, false, one...)
		// What precedes a value in its base64 or its quotes is not of it, nor is a
		// part of one escape.
		if !hit || passed > len(s)/4+24 {
			t.Errorf("%s: found: %v, %d of %d bytes passed on", name, hit, passed, len(s))
		}
	}
}

// TestSearchHoldsLittle streams text that looks like a value's beginning for
// as long as it can.
func TestSearchHoldsLittle(t *testing.T) {
	value := strings.Repeat("c", 40)
	tests := []struct{ name, text string }{
		{"entities", strings.Repeat("&#"+strings.Repeat("0", 45)+"99;", 39) + strings.Repeat("\n", 1<<16)},
		{"printable", strings.Repeat("=63", 39) + strings.Repeat("\n", 1<<16)},
		{"printable-lines", strings.Repeat("=63=\r\n", 39) + strings.Repeat("=0A", 1<<16)},
		{"escapes", strings.Repeat(`%63`, 39) + strings.Repeat("\n", 1<<16)},
		{"ends-of-lines", value[1:] + strings.Repeat("\n", 1<<16)},
		{"zeros", value[1:] + strings.Repeat("\x00", 1<<16)},
		{"backslashes", strings.Repeat(`\`, 1<<16)},
		{"almost", strings.Repeat(value[1:]+"x", 1<<10)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chunks := slices.Collect(slices.Chunk([]byte(tt.text), 7))
			if hit, _, held := inject.Find([]string{value}, false, chunks...); hit || held > 40*(10+64) {
				t.Errorf("found: %v, held %d bytes", hit, held)
			}
		})
	}
}

// TestSearchDelaysNothing has what ends in a text's first characters go on at
// once.
func TestSearchDelaysNothing(t *testing.T) {
	value := "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
	for _, end := range []string{"g", "gh", "ghp_", "\n", "\r\n\r\n", "%", `\`, "=", "&", "&am", "&#0000", "=4", "=41", "\x00", "Z2"} {
		text := []byte("data: something " + end)
		if _, passed, _ := inject.Find([]string{value}, false, text); passed != len(text) {
			t.Errorf("%q: %d of %d bytes are passed on", text, passed, len(text))
		}
	}
}

func TestUnescaped(t *testing.T) {
	tests := []struct{ in, want string }{
		{"plain", "plain"},
		{"%41%4a%zz%4", "AJ%zz%4"},
		{`\u0041\x42\"\\\/\u00`, `AB"\/\u00`},
		{`a\nb\r\tc`, `ab\tc`},
		{"&amp;&#65;&#x42;&nope;&", "&AB&nope;&"},
		{"&#00065;&#X0000042&#67.&#;&#x;&#xg", "ABC.&#;&#x;&#xg"},
		{"&#" + strings.Repeat("0", 60) + "65;&lowbar;&LowBar;", "&#" + strings.Repeat("0", 60) + "65;_&LowBar;"},
		{"a=\r\nb=3Dc=41", "ab=c=41"},
		{"l1\r\nl2\x00", "l1l2"},
		{"%00%0d%0A", ""},
		{`\u00e9`, "é"},
		{"%2541", "%41"},
	}
	for _, tt := range tests {
		if got := inject.Unescaped(tt.in); got != tt.want {
			t.Errorf("unescaped %q = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestSearchAgainstContains compares the search with bytes.Contains on texts
// of few letters, where matches and near misses are many.
func TestSearchAgainstContains(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[rnd.IntN(3)]
		}
		return string(b)
	}
	hits := 0
	for range 20_000 {
		texts := []string{word(8 + rnd.IntN(3)), word(8), word(9 + rnd.IntN(8))}
		hay := word(rnd.IntN(200))
		if rnd.IntN(4) == 0 {
			hay += texts[rnd.IntN(3)] + word(rnd.IntN(20))
		}
		want := slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(hay, s) })
		if want {
			hits++
		}
		if got := inject.FindRaw(texts, []byte(hay)); got != want {
			t.Fatalf("search for %q in %q = %v, want %v", texts, hay, got, want)
		}
	}
	if hits == 0 || hits == 20_000 {
		t.Errorf("%d hits: the comparison compares nothing", hits)
	}
}

func FuzzSearchSplit(f *testing.F) {
	for _, s := range spellings(needle) {
		f.Add(needle, []byte("x"+s+"y"), uint64(3), false)
	}
	f.Add("aaaaaaaaab", []byte("aaaaaaaaaaaaaa%61aaaab"), uint64(1), false)
	f.Add(needle, frame(1, []byte(needle), 7), uint64(9), true)
	f.Fuzz(func(t *testing.T, value string, text []byte, seed uint64, frames bool) {
		if len(value) < 8 || len(value) > 1000 || len(text) > 1<<16 {
			return
		}
		whole, _, _ := inject.Find([]string{value}, frames, text)
		if !frames && !whole && bytes.Contains(text, []byte(value)) {
			t.Fatalf("%q is in %q, and not found", value, text)
		}
		rnd := rand.New(rand.NewPCG(seed, 0))
		var chunks [][]byte
		for rest := text; len(rest) > 0; {
			n := 1 + rnd.IntN(min(len(rest), 20))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		split, passed, _ := inject.Find([]string{value}, frames, chunks...)
		if split != whole {
			t.Fatalf("%q in %q: found: %v, split: %v", value, text, whole, split)
		}
		if split && !frames && bytes.Contains(text[:passed], []byte(value)) {
			t.Fatalf("%q was passed on in %q", value, text[:passed])
		}
	})
}

// frame is a WebSocket frame of the opcode, masked unless mask is 0.
func frame(op byte, payload []byte, mask uint32) []byte {
	b := []byte{op}
	bit := byte(0)
	if mask != 0 {
		bit = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n)|bit)
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126|bit), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127|bit), uint64(n))
	}
	if mask == 0 {
		return append(b, payload...)
	}
	key := binary.BigEndian.AppendUint32(nil, mask)
	b = append(b, key...)
	for i, c := range payload {
		b = append(b, c^key[i&3])
	}
	return b
}

func TestSearchReadsFrames(t *testing.T) {
	value := "carboy_secret_x_0123456789abcdefghijklmnopqrstuv"
	half := len(value) / 2
	long := strings.Repeat("long text ", 10_000)
	tests := []struct {
		name   string
		stream []byte
		want   bool
	}{
		{"masked", frame(0x81, []byte("say "+value), 0x12345678), true},
		{"unmasked", frame(0x82, []byte(value), 0), true},
		{"fragments", slices.Concat(frame(0x01, []byte(value[:half]), 7), frame(0x80, []byte(value[half:]), 9)), true},
		{"a-ping-between", slices.Concat(frame(0x01, []byte(value[:half]), 7), frame(0x89, []byte("ping"), 8), frame(0x80, []byte(value[half:]), 9)), true},
		{"in-a-ping", frame(0x89, []byte(value), 3), true},
		{"long", frame(0x81, []byte(long+value), 0xdeadbeef), true},
		{"an-extension", frame(0xc1, []byte("compressed?"), 3), true},
		{"nothing", slices.Concat(frame(0x81, []byte(long), 5), frame(0x89, nil, 5), frame(0x81, []byte("x"), 6)), false},
		{"other-mask-hides-nothing", frame(0x81, []byte(value[:half]), 5), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 5, 1 << 20} {
				chunks := slices.Collect(slices.Chunk(tt.stream, size))
				hit, passed, _ := inject.Find([]string{value}, true, chunks...)
				if hit != tt.want {
					t.Errorf("in pieces of %d: found: %v, want %v", size, hit, tt.want)
				}
				if hit && size == 1 && passed > max(1, len(tt.stream)-half) {
					t.Errorf("%d of %d bytes were passed on", passed, len(tt.stream))
				}
			}
		})
	}
}
