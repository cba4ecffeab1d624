package cli_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

func TestNearest(t *testing.T) {
	names := []string{"memory", "mount", "name", "network", "env", "env-file"}
	for in, want := range map[string]string{
		"memry": "memory", "mem": "memory", "naem": "name", "net": "network", "env-fle": "env-file", "wholly-other": "", "x": "",
	} {
		if got := cli.Nearest(in, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
	if got := cli.EditDistance("abcd", "abdc"); got != 1 {
		t.Errorf("a swap is %d steps, want 1", got)
	}
	cli.EditDistance(strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20)) // returns soon
}
