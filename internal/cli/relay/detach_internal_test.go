package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The detach keys leave, typed at once or slowly, as control characters or as terminals tell keys
// that were asked for more: what is typed besides arrives as it was.
func TestDetaching(t *testing.T) {
	const late = "late" // in the place of a key: what is held back was held for long enough
	for name, c := range map[string]struct {
		typed  []string
		want   string
		leaves bool
	}{
		"at once":           {[]string{"ls\n\x10\x11lost"}, "ls\n", true},
		"in two":            {[]string{"ls\n\x10", "\x11"}, "ls\n", true},
		"late":              {[]string{"a\x10", late, "\x11"}, "a\x10", true},
		"much later":        {[]string{"\x10", late, late, "\x11"}, "\x10", true},
		"begun twice":       {[]string{"\x10", "\x10\x10", "\x11"}, "\x10\x10", true},
		"another key":       {[]string{"\x10", "k\x11", late}, "\x10k\x11", false},
		"late, another":     {[]string{"\x10", late, "k", "\x11", late}, "\x10k\x11", false},
		"in a line":         {[]string{"\x10k\x11z"}, "\x10k\x11z", false},
		"turned around":     {[]string{"\x11", "\x10", late}, "\x11\x10", false},
		"a character":       {[]string{"\xe6\xbc", "\xa2"}, "漢", false},
		"none":              {[]string{"\xe9", late, "x"}, "\xe9x", false},
		"none, held":        {[]string{"\xe9", "\x10", "\x11"}, "\xe9", true},
		"kitty":             {[]string{"\x1b[112;5u", "\x1b[113;5u"}, "", true},
		"kitty, late":       {[]string{"\x1b[112;5u", late, "\x1b[113;5u"}, "\x1b[112;5u", true},
		"kitty, with ups":   {[]string{"\x1b[57442;5u\x1b[112;5:1u", "\x1b[112;5:3u\x1b[57442;5:3u", "\x1b[57442;5u", "\x1b[113::113;5u"}, "\x1b[57442;5u", true},
		"kitty, ups late":   {[]string{"\x1b[112;5:1u", late, "\x1b[112;5:3u", late, "\x1b[113;69u"}, "\x1b[112;5:1u\x1b[112;5:3u", true},
		"kitty, cyrillic":   {[]string{"\x1b[1079::112;5u", "\x1b[1081::113;5u"}, "", true},
		"kitty, dvorak":     {[]string{"\x1b[108::112;5u", "\x1b[39::113;5u"}, "\x1b[108::112;5u\x1b[39::113;5u", false},
		"kitty, no control": {[]string{"\x1b[112u\x1b[112;3u", "\x1b[113;6u"}, "\x1b[112u\x1b[112;3u\x1b[113;6u", false},
		"kitty, a key":      {[]string{"\x1b[112;5u", "\x1b[107;5u\x1b[113;5u"}, "\x1b[112;5u\x1b[107;5u\x1b[113;5u", false},
		"xterm":             {[]string{"\x1b[27;5;112~\x1b[27;5;113~"}, "", true},
		"escape":            {[]string{"\x1b", "[113;5u\x1b["}, "\x1b[113;5u\x1b[", false},
	} {
		t.Run(name, func(t *testing.T) {
			var d detaching
			var sent strings.Builder
			leaves := false
			for _, typed := range c.typed {
				if typed == late {
					sent.Write(d.release())
					continue
				}
				text, left := d.take([]byte(typed))
				sent.Write(text)
				leaves = leaves || left
			}
			if sent.String() != c.want || leaves != c.leaves {
				t.Errorf("typed %q: sent %q, leaves: %v; want %q, %v", c.typed, sent.String(), leaves, c.want, c.leaves)
			}
		})
	}
}

// FuzzDetaching: whatever is typed, in whatever pieces, arrives as it was unless somebody leaves.
func FuzzDetaching(f *testing.F) {
	for _, seed := range []string{"a\x10b", "\x10\x11", "\x1b[112;5u\x1b[112;5:3u", "\x1b[27;5;112~x", "漢\xe6\xbc"} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, typed []byte, piece uint8) {
		var d detaching
		var sent []byte
		for rest := typed; len(rest) > 0; {
			n := min(int(piece)+1, len(rest))
			text, left := d.take(append([]byte(nil), rest[:n]...))
			sent = append(sent, text...)
			if rest = rest[n:]; left {
				return
			}
			if piece%2 == 0 {
				sent = append(sent, d.release()...)
			}
		}
		if sent = append(sent, d.release()...); string(sent) != string(typed) {
			t.Errorf("typed %q, sent %q", typed, sent)
		}
	})
}

// Ctrl-P alone is sent a little later, for those who want it of what runs there.
func TestKeyboard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancelCause(t.Context())
		defer leave(nil)
		k := &keyboard{ctx: ctx, leave: leave, typed: make(chan []byte)}
		read := func() string {
			b := make([]byte, 64)
			n, err := k.Read(b)
			if err != nil {
				return err.Error()
			}
			return string(b[:n])
		}
		for _, step := range []struct {
			typed, want string
			after       time.Duration
		}{
			{"ls\n", "ls\n", 0},
			{"a\x10", "a", 0},
			{"", "\x10", heldFor},
			{"k", "k", 0},
			{"\x11", "\x11", 0},
			{"x\x10", "x", 0},
			{"", "\x10", heldFor},
			{"\x11", "EOF", 0},
		} {
			if step.typed != "" {
				go func() { k.typed <- []byte(step.typed) }()
			}
			began := time.Now()
			if got := read(); got != step.want || time.Since(began) != step.after {
				t.Errorf("typed %q, read %q after %s, want %q after %s", step.typed, got, time.Since(began), step.want, step.after)
			}
		}
		if !errors.Is(context.Cause(ctx), errDetached) {
			t.Errorf("ended by %v", context.Cause(ctx))
		}
	})
}
