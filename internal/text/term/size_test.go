package term_test

import (
	"math"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func TestParseSize(t *testing.T) {
	tests := []struct {
		in   string
		want int64 // 0: an error
	}{
		{"1", 1},
		{"1b", 1},
		{"512m", 512 << 20},
		{"512M", 512 << 20},
		{"512mb", 512 << 20},
		{"512MiB", 512 << 20},
		{"1g", 1 << 30},
		{"1.5g", 3 << 29},
		{"0.5k", 512},
		{"1.000000001g", 1<<30 + 1},
		{"2t", 2 << 40},
		{"9223372036854775807", math.MaxInt64},
		{"8388607t", 8388607 << 40},
		{"8388608t", 0},
		{"8388607.9999999999999999999t", 0},
		{"9223372036854775808", 0},
		{"0", 0},
		{"0.0001b", 0},
		{"", 0},
		{"g", 0},
		{"b", 0},
		{"ib", 0},
		{"1bb", 0},
		{"1bib", 0},
		{"1ib", 0},
		{"1gg", 0},
		{"1 g", 0},
		{"-1g", 0},
		{"+1g", 0},
		{"1e3", 0},
		{"0x10", 0},
		{"1.g", 0},
		{".5g", 0},
		{"1.2.3g", 0},
		{"1,5g", 0},
		{"١g", 0},
		{"NaN", 0},
		{"inf", 0},
		{"1_000", 0},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := term.ParseSize(tt.in)
			if got != tt.want || (err == nil) != (tt.want != 0) {
				t.Errorf("ParseSize(%q) = %d, %v; want %d", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestFormatSize(t *testing.T) {
	for in, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1 MiB", 2 << 30: "2 GiB",
		math.MaxInt64: "8 EiB",
	} {
		if got := term.FormatSize(in); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "1.5g", "512mib", "9223372036854775807", "0.9999999999999999t", "8388607.99999999t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := term.ParseSize(s)
		if err == nil && n <= 0 {
			t.Errorf("ParseSize(%q) = %d", s, n)
		}
		if err != nil && n != 0 {
			t.Errorf("ParseSize(%q) = %d and %v", s, n, err)
		}
	})
}
