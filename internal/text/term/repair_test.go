package term_test

import (
	"testing"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// The replacements are those of Python's decoder, as models of the original saw.
func TestRepair(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain é 😀": "plain é 😀", "\xff\xff": "��", "\xe2\x82": "�", "\xe2\x82a": "�a",
		"\xf0\x9f\x98": "�", "\xed\xa0\x80": "���", "\xc0\xaf": "��", "\xf4\x90\x80\x80": "����",
		"\xe0\x80\x80": "���", "a\xf0\x9f\x98\x80b\x80": "a😀b�", "\xf0\x80\x80\x80": "����",
		"\xe2\x28\xa1": "�(�", "\xf1\x80\x80z": "�z", "\xc2": "�", "\xf8\x88\x80\x80\x80": "�����", "�": "�",
	} {
		if got := term.Repair([]byte(in)); got != want {
			t.Errorf("Repair(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzRepair(f *testing.F) {
	f.Add("hello\xff world é")
	f.Fuzz(func(t *testing.T, s string) {
		if fixed := term.Repair([]byte(s)); !utf8.ValidString(fixed) || utf8.ValidString(s) && fixed != s {
			t.Fatalf("Repair(%q) = %q", s, fixed)
		}
	})
}
