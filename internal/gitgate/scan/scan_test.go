package scan_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"

	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
	"github.com/carboy-sandbox/carboy/test/long"
)

// secret is one of nobody's, put together here so that this file has none.
var secret = "gh" + "p_" + "x7Kq2mV9sT4wB8nR1cY6uJ3eL5aZ0dHf2GiP"

func rules(t testing.TB) *scan.Rules {
	t.Helper()
	r, err := scan.Load()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wide(s string, order func(b []byte, u uint16) []byte) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = order(b, u)
	}
	return b
}

func little(b []byte, u uint16) []byte { return append(b, byte(u), byte(u>>8)) }
func big(b []byte, u uint16) []byte    { return append(b, byte(u>>8), byte(u)) }

func packed(t testing.TB, open func(io.Writer) io.WriteCloser, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := open(&out)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gz(t testing.TB, text []byte) []byte {
	return packed(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, text)
}

func b64(text []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(text)) }

func wrapped(text []byte, width int, between string) []byte {
	var lines []string
	for len(text) > width {
		lines, text = append(lines, string(text[:width])), text[width:]
	}
	return []byte(strings.Join(append(lines, string(text)), between))
}

func zipped(t testing.TB, name string, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func escapes(s []byte, format string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

// TestEncodings: a secret is found in whatever it is wrapped, on its line. The same text
// without it is not taken for one.
func TestEncodings(t *testing.T) {
	text := func(s string) []byte { return []byte("one\ntwo\ntoken = \"" + s + "\"\n") }
	noise := make([]byte, 300_000)
	random := rand.NewChaCha8([32]byte{})
	if _, err := random.Read(noise); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		line int
		wrap func(s []byte) []byte
	}{
		{"plain", 3, func(s []byte) []byte { return s }},
		{"behind-much", 0, func(s []byte) []byte { return cat(bytes.Repeat([]byte("lorem ipsum\n"), 60_000), s) }},
		{"behind-noise", 0, func(s []byte) []byte { return cat(noise, s) }},
		{"utf-16-little", 3, func(s []byte) []byte { return wide("\ufeff"+string(s), little) }},
		{"utf-16-big", 3, func(s []byte) []byte { return wide(string(s), big) }},
		{"utf-16-odd", 0, func(s []byte) []byte { return cat([]byte("plain text first"), wide(string(s), little), noise[:999]) }},
		{"base64", 1, b64},
		{"base64-url", 1, func(s []byte) []byte { return []byte(base64.URLEncoding.EncodeToString(cat(s, noise[:64]))) }},
		{"base64-shifted-1", 1, func(s []byte) []byte { return cat([]byte("x"), b64(s)) }},
		{"base64-shifted-2", 1, func(s []byte) []byte { return cat([]byte("xy"), b64(s)) }},
		{"base64-shifted-3", 1, func(s []byte) []byte { return cat([]byte("a/b"), b64(s)) }},
		{"base64-wrapped", 2, func(s []byte) []byte { return cat([]byte("k: |\n"), wrapped(b64(cat(s, noise[:200])), 76, "\n  ")) }},
		{"base64-of-utf-16", 1, func(s []byte) []byte { return b64(wide(string(s), little)) }},
		{"utf-16-of-base64", 1, func(s []byte) []byte { return wide(string(b64(s)), big) }},
		{"base64-twice", 1, func(s []byte) []byte { return b64(b64(s)) }},
		{"hexadecimal", 1, func(s []byte) []byte { return []byte(hex.EncodeToString(s)) }},
		{"hexadecimal-shifted", 1, func(s []byte) []byte { return []byte("a" + hex.EncodeToString(s)) }},
		{"percent", 1, func(s []byte) []byte { return []byte(escapes(s, "%%%02X")) }},
		{"escapes", 1, func(s []byte) []byte { return []byte(escapes(s, `\x%02x`)) }},
		{"escapes-unicode", 1, func(s []byte) []byte { return []byte(escapes(s, `\u%04x`)) }},
		{"escapes-octal", 1, func(s []byte) []byte { return []byte(escapes(s, `\%03o`)) }},
		{"gzip", 1, func(s []byte) []byte { return gz(t, s) }},
		{"gzip-within", 0, func(s []byte) []byte { return cat(noise[:5000], gz(t, s), noise[:500]) }},
		{"gzip-twice", 1, func(s []byte) []byte { return gz(t, gz(t, s)) }},
		{"base64-of-gzip", 1, func(s []byte) []byte { return b64(gz(t, s)) }},
		{"gzip-of-base64", 1, func(s []byte) []byte { return gz(t, b64(s)) }},
		{"gzip-cut", 1, func(s []byte) []byte { z := gz(t, s); return z[:len(z)-4] }},
		{"zlib", 1, func(s []byte) []byte {
			return packed(t, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, s)
		}},
		{"zstd", 0, func(s []byte) []byte {
			return packed(t, func(w io.Writer) io.WriteCloser {
				z, err := zstd.NewWriter(w)
				if err != nil {
					t.Fatal(err)
				}
				return z
			}, s)
		}},
		{"zlib-within", 0, func(s []byte) []byte {
			return cat([]byte("%PDF-1.7\n4 0 obj\n<</Filter /FlateDecode>>\nstream\r\n"), packed(t, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, s), []byte("\nendstream\n"))
		}},
		{"zip-that-lies", 1, func(s []byte) []byte {
			z := zipped(t, "a.txt", s)
			at := bytes.Index(z, []byte("PK\x01\x02"))
			binary.LittleEndian.PutUint32(z[at+24:], 1) // bytes, unpacked
			return z
		}},
		{"zip-of-no-list", 1, func(s []byte) []byte { z := zipped(t, "a.txt", s); return z[:bytes.Index(z, []byte("PK\x01\x02"))] }},
		{"zip-behind-a-line", 2, func(s []byte) []byte { return cat([]byte("#!/usr/bin/env python3\n"), zipped(t, "a.txt", s)) }},
		{"zip-in-tar", 0, func(s []byte) []byte { return cat(make([]byte, 512), zipped(t, "a.txt", s)) }},
		{"zip", 1, func(s []byte) []byte { return zipped(t, "a.txt", s) }},
		{"zip-name", 1, func(s []byte) []byte { return zipped(t, strings.Fields(string(s))[4]+".txt", nil) }},
	}
	r := rules(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := r.Search(tt.wrap(text(secret)), "a.txt")
			if len(res.Hits) == 0 || res.Hits[0].Rule != "github-pat" || tt.line != 0 && res.Hits[0].Line != tt.line {
				t.Errorf("%+v, want it on line %d", res, tt.line)
			}
			if res := r.Search(tt.wrap(text("none of anybody's that there is")), "a.txt"); len(res.Hits) > 0 || res.Opaque != "" {
				t.Errorf("without one: %+v", res)
			}
		})
	}
}

// TestNothingExcuses: no name of a file and no comment excuses a token; of what only stands
// where secrets do, lock files are excused.
func TestNothingExcuses(t *testing.T) {
	r := rules(t)
	for _, path := range []string{"package-lock.json", "go.sum", "a.png", "node_modules/x", ".gitleaks.toml", "vendor/modules.txt"} {
		if res := r.Search([]byte("t = "+secret+" # gitleaks:allow\n"), path); len(res.Hits) != 1 {
			t.Errorf("%s: %+v", path, res)
		}
	}
	line := []byte("github.com/x/auth v1.0.0 h1:kJ8vN2qLr5Tz9WbXc4Ye7Ud1Gf6Hs3Pa0MoIiKlRnEw=\n")
	if res := r.Search(line, "go.sum"); len(res.Hits) != 0 {
		t.Errorf("a sum: %+v", res)
	}
	if res := r.Search(line, "main.go"); len(res.Hits) != 1 {
		t.Errorf("the same elsewhere: %+v", res)
	}
	if res := r.Search(nil, "a/server.p12"); len(res.Hits) != 1 || res.Hits[0].Rule != "pkcs12-file" {
		t.Errorf("a file that is a secret by its name: %+v", res)
	}
}

// TestPrivateKey: a key is one by its first line, whatever follows it. A program that knows
// of such lines has none.
func TestPrivateKey(t *testing.T) {
	r := rules(t)
	begin, end := "-----BEGIN RSA PRIVATE "+"KEY-----", "-----END RSA PRIVATE "+"KEY-----\n"
	body := strings.Repeat("MIIEowIBAAKCAQEA7x2Kq9mVsT4wB8nR1cY6uJ3eL5aZ0dHf2GiPx7Kq2mV9sT4w\n", 20)
	for name, text := range map[string]string{
		"as-it-is":    begin + "\n" + body + end,
		"with-header": begin + "\nX-A: false\n" + body + end,
		"alphabet":    begin + "\nX-A: abcdefghijklmnopqrstuvwxyz\n" + body + end,
		"far":         begin + strings.Repeat("\n", 9000) + body + end,
		"endless":     begin + "\n" + body,
		"in-json":     `{"key": "` + begin + `\n` + strings.ReplaceAll(body, "\n", `\n`) + `"}`,
	} {
		if res := r.Search([]byte(text), "a.txt"); len(res.Hits) != 1 || res.Hits[0].Rule != "private-key" {
			t.Errorf("%s: %+v", name, res.Hits)
		}
	}
	if res := r.Search([]byte("if strings.HasPrefix(s, \""+begin+"\") {\n"), "a.go"); len(res.Hits) != 0 {
		t.Errorf("a program: %+v", res.Hits)
	}
}

// TestJWT: of a token in base64 all is compared, and not only how it begins.
func TestJWT(t *testing.T) {
	token := "ZXlK" + "aGJHY2lPaUpJVXpJMU5pSXNJblI1Y0NJNklrcFhWQ0o5LmV5SnpkV0lpT2lJeE1qTTBOVFkzT0Rrd0luMC5kb3o4"
	res := rules(t).Search([]byte("x "+token+" y\n"), "")
	if len(res.Hits) != 1 || string(res.Hits[0].Secret) != token {
		t.Errorf("%+v", res.Hits)
	}
}

// TestOpaque: what can't be looked into is named, and a bomb is not swallowed.
func TestOpaque(t *testing.T) {
	most := long.Rounds[int64](8<<20, 256<<20)
	bomb := gz(t, make([]byte, most+1<<20))
	deep := []byte("x")
	for range 8 {
		deep = gz(t, deep)
	}
	encoded := []byte("some words that nobody is to see")
	for range 6 {
		encoded = b64(encoded)
	}
	noise := make([]byte, 2000)
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		t.Fatal(err)
	}
	r := rules(t)
	for name, tt := range map[string]struct {
		text []byte
		want string
	}{
		"bomb":      {bomb, "expands to more"},
		"deep":      {deep, "more often"},
		"xz-later":  {[]byte("\n\xfd7zXZ\x00abc"), "xz"},
		"pgp-later": {[]byte("hello\n  -----BEGIN PGP MESSAGE-----\n"), "PGP"},
		"encoded":   {encoded, "more often"},
		"escaped":   {[]byte(strings.Repeat("%252525252525252567", 3)), "more often"},
		"zip-cut":   {zipped(t, "a", noise)[:500], "can't be read"},
		"xz":        {[]byte("\xfd7zXZ\x00abc"), "xz"},
		"pgp":       {[]byte("-----BEGIN PGP MESSAGE-----\n"), "PGP"},
		"lfs":       {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), "LFS"},
		"bad-zip":   {[]byte("PK\x03\x04nothing"), "can't be read"},
		"gzips":     {bytes.Repeat([]byte("\x1f\x8b\x08"), 100), "more that is compressed"},
	} {
		if res := r.SearcherForTest(most, 0).Search(tt.text, "x"); !strings.Contains(res.Opaque, tt.want) {
			t.Errorf("%s: %+v, want %q", name, res, tt.want)
		}
	}
}

// TestTogether: several texts become no more together than some times what they are.
func TestTogether(t *testing.T) {
	most := long.Rounds[int64](8<<20, 256<<20)
	bomb := gz(t, make([]byte, most*2/5))
	all := rules(t).SearcherForTest(most, int64(4*len(bomb)))
	n := 0
	for range 4 {
		if res := all.Search(bomb, ""); strings.Contains(res.Opaque, "expands to more") {
			n++
		}
	}
	if n == 0 {
		t.Error("each may become as much as one")
	}
}

// TestNotOpaque: what only speaks of such things, or is no text at all, can be looked into.
func TestNotOpaque(t *testing.T) {
	noise := make([]byte, long.Rounds(1<<20, 4<<20))
	if _, err := rand.NewChaCha8([32]byte{1}).Read(noise); err != nil {
		t.Fatal(err)
	}
	r := rules(t)
	for name, text := range map[string][]byte{
		"noise":    noise,
		"formulas": bytes.Repeat([]byte("f(x) = x^2 + x^{3} - x^n, a stream of x\n"), 1000),
		"words":    []byte("it begins with -----BEGIN PGP MESSAGE-----, or with Salted__ or BZh9 or PK\n"),
		"source":   source(t),
	} {
		if res := r.Search(text, "a.txt"); res.Opaque != "" {
			t.Errorf("%s: %s", name, res.Opaque)
		}
	}
}

// source is this package's and its neighbours'.
func source(t testing.TB) (all []byte) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}

// FuzzSearch: no text takes long, panics or is read beyond its end.
func FuzzSearch(f *testing.F) {
	f.Add([]byte("token = "+secret), "a.txt")
	f.Add(gz(f, b64([]byte("token = "+secret))), "")
	f.Add([]byte("\x1f\x8b\x08BZhPK\x03\x04"), "x.p12")
	r := rules(f)
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		if res := r.Search(text, path); len(res.Hits) > 25 {
			t.Errorf("%d hits", len(res.Hits))
		}
	})
}

// BenchmarkSearch is how fast texts are searched, in MB/s.
func BenchmarkSearch(b *testing.B) {
	r := rules(b)
	source := source(b)
	source = bytes.Repeat(source, 1+(1<<20)/len(source))
	noise := make([]byte, 1<<20)
	if _, err := rand.NewChaCha8([32]byte{}).Read(noise); err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		text []byte
	}{{"source", source}, {"noise", noise}, {"base64", b64(noise)}, {"gzip", gz(b, source)}} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.text)))
			for b.Loop() {
				r.Search(bb.text, "x.go")
			}
		})
	}
}
