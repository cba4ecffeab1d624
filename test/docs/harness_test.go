package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommands(t *testing.T) {
	block := func(lines ...string) string {
		return "# Title\n\n" + mark + "\n" + fence + "console\n" + strings.Join(lines, "\n") + "\n" + fence + "\nend\n"
	}
	tests := []struct {
		name, text string
		want       []command
		fails      bool
		root       bool
	}{
		{name: "unmarked", text: fence + "console\n$ x\n" + fence},
		{name: "marked", text: block("$ a", "out", "$ b"), want: []command{
			{line: 5, text: "a", want: []string{"out"}}, {line: 7, text: "b"},
		}},
		{name: "continued", text: block("$ a <<E", "> b", "> E"), want: []command{{line: 5, text: "a <<E\nb\nE"}}},
		{name: "continued-by-nothing", text: block("$ a <<E", "> b", ">", "> E"), want: []command{{line: 5, text: "a <<E\nb\n\nE"}}},
		{name: "exit-code", text: block("$ a  # exits 124"), want: []command{{line: 5, text: "a", exit: 124}}},
		{name: "for-root", text: strings.Replace(block("$ a"), mark, markRoot, 1)},
		{name: "for-root-by-root", text: strings.Replace(block("$ a"), mark, markRoot, 1), root: true, want: []command{{line: 5, text: "a"}}},
		{name: "mark-before-nothing", text: mark + "\n\ntext", fails: true},
		{name: "mark-before-other-block", text: mark + "\n" + fence + "go\n" + fence, fails: true},
		{name: "unended", text: mark + "\n" + fence + "console\n$ a", fails: true},
		{name: "output-first", text: block("out"), fails: true},
		{name: "empty", text: mark + "\n" + fence + "console\n" + fence, fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := commands(tt.text, tt.root)
			if (err != nil) != tt.fails {
				t.Fatalf("commands: error %v, want one: %t", err, tt.fails)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(command{})); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrints(t *testing.T) {
	tests := []struct {
		name   string
		want   []string
		output string
		ok     bool
	}{
		{"nothing", nil, "", true},
		{"something-for-nothing", nil, "x\n", false},
		{"same", []string{"a", "b"}, "a\nb\n", true},
		{"no-final-newline", []string{"a"}, "a", true},
		{"blank-end", []string{"a"}, "a\n\n", true},
		{"any-text", []string{"a ... c"}, "a b b c\n", true},
		{"any-text-stays-on-its-line", []string{"a ... c"}, "a b\nc\n", false},
		{"any-lines", []string{"a", "...", "d"}, "a\nb\nc\nd\n", true},
		{"no-lines", []string{"a", "...", "d"}, "a\nd\n", true},
		{"more", []string{"a"}, "a\nb\n", false},
		{"less", []string{"a", "b"}, "a\n", false},
		{"not-a-pattern", []string{"a.c"}, "abc\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (command{want: tt.want}).prints(tt.output); got != tt.ok {
				t.Errorf("prints(%q) = %t, want %t", tt.output, got, tt.ok)
			}
		})
	}
}

// The harness against a carboy that only echoes: what it must accept, and
// what it must refuse.
func TestRun(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "carboy")
	script := "#!/bin/sh\ncase $1 in\nls) [ -z \"$2\" ] || echo '[]' ;;\nfail) echo oops >&2; exit 3 ;;\nrun) shift 2; exec \"$@\" ;;\nesac\n"
	if err := os.WriteFile(fake, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cmds []command
		want int // problems
	}{
		{"output", []command{{text: "carboy run -- echo hi", want: []string{"hi"}}}, 0},
		{"other-output", []command{{text: "carboy run -- echo hi", want: []string{"ho"}}}, 1},
		{"stderr-and-code", []command{{text: "carboy fail", want: []string{"oops"}, exit: 3}}, 0},
		{"other-code", []command{{text: "carboy fail", want: []string{"oops"}}}, 1},
		{"goes-on-in-its-directory", []command{{text: "mkdir d && cd d"}, {text: "basename $PWD", want: []string{"d"}}}, 0},
		{"what-make-builds", []command{{text: "make build && bin/carboy run -- echo hi", want: []string{"hi"}}}, 0},
		{"leaves-the-shell", []command{{text: "exit 0"}, {text: "echo hi", want: []string{"hi"}}}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := newWorld(t, fake).run(t, tt.cmds); len(got) != tt.want {
				t.Errorf("run = %q, want %d problems", got, tt.want)
			}
		})
	}
}

// TestOrdinaryUsersCanFollow: what is shown to be run by anybody asks for no limit that root alone
// may have kept, or those to whom control groups are delegated.
func TestOrdinaryUsersCanFollow(t *testing.T) {
	limit := regexp.MustCompile(`carboy (run|create) .*--(memory|cpus|disk)\b`)
	for _, file := range documents(t) {
		cmds, err := commands(read(t, file), false)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, c := range cmds {
			if limit.MatchString(c.text) {
				t.Errorf("%s:%d: %s: fails for a user without root", file, c.line, c.text)
			}
		}
	}
	if !limit.MatchString("carboy create --name web --memory 1g") {
		t.Error("a limit is not found")
	}
}
