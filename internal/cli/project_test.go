package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProjectAsks: on a terminal a project's file is asked about once, in words that
// can't hurt the terminal, and what was shown is what is taken, whatever the file has
// become meanwhile.
func TestProjectAsks(t *testing.T) {
	for _, tt := range []struct {
		name, answer, swap string
		code               int
		says               string
		asksAgain          bool
	}{
		{name: "yes", answer: "y\n", says: "caches"},
		{name: "no", answer: "n\n", code: 125, says: "is not allowed what it asks for", asksAgain: true},
		{name: "nothing", answer: "\n", code: 125, says: "--no-project", asksAgain: true},
		{name: "interrupt", answer: "\x03", code: 130, asksAgain: true},
		{name: "swapped", answer: "y\n", swap: "network = \"on\"\n", says: "caches", asksAgain: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, dir := startFake(t), t.TempDir()
			file := filepath.Join(dir, ".carboy.toml")
			if err := os.WriteFile(file, []byte("caches = [\"go\"]\n[env]\nA = \"\\u001b[2J\"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			state := []string{"CARBOY_STATE=" + filepath.Join(t.TempDir(), "state")}
			s := onTerminal(t, d, state, "create", "--workspace", dir, "--name", "one")
			asked := s.expect("[y/N] ")
			for _, want := range []string{"asks for:", "a cache for go", `the variable A=\x1b[2J`} {
				if !strings.Contains(asked, want) {
					t.Errorf("it asks %q, without %q", asked, want)
				}
			}
			if tt.swap != "" {
				if err := os.WriteFile(file, []byte(tt.swap), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s.send(tt.answer)
			code, rest := s.wait()
			if tt.code != 130 && code != tt.code || code == 0 != (tt.code == 0) || !strings.Contains(rest, tt.says) {
				t.Errorf("code %d: %q", code, rest)
			}
			if tt.swap != "" && strings.Contains(rest, "network") {
				t.Errorf("it takes what was not shown: %q", rest)
			}
			again := onTerminal(t, d, state, "create", "--workspace", dir, "--name", "two")
			if tt.asksAgain {
				again.expect("[y/N] ")
				again.send("n\n")
			}
			if _, rest := again.wait(); !tt.asksAgain && strings.Contains(rest, "[y/N]") {
				t.Errorf("it asks again: %q", rest)
			}
		})
	}
}
