package near_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/near"
)

func TestOf(t *testing.T) {
	names := []string{"memory", "mount", "name", "network", "env", "env-file"}
	for in, want := range map[string]string{
		"memry": "memory", "mem": "memory", "naem": "name", "net": "network", "env-fle": "env-file", "wholly-other": "", "x": "",
	} {
		if got := near.Of(in, names); got != want {
			t.Errorf("Of(%q) = %q, want %q", in, got, want)
		}
	}
	if got := near.Of("abcd", []string{"abdc"}); got != "abdc" {
		t.Errorf("a swap: %q", got)
	}
	commands := []string{"open", "run", "rm", "ls", "stop", "sync", "exec"}
	for in, want := range map[string]string{"nope": "", "opne": "open", "opn": "open", "rnu": "run", "exce": "exec", "tops": "", "syn": "sync", "stoop": "stop", "sotpp": "stop"} {
		if got := near.Of(in, commands); got != want {
			t.Errorf("Of(%q) = %q, want %q", in, got, want)
		}
	}
	near.Of(strings.Repeat("a", 1<<20), []string{strings.Repeat("b", 1<<20)}) // returns soon
}
