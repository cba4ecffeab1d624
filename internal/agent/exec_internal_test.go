package agent

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

func TestKept(t *testing.T) {
	k := kept{excerpt.New(8, 4)}
	k.add(0, []byte("hello "))
	k.add(4, []byte("o world")) // two bytes of it for the second time
	k.add(11, bytes.Repeat([]byte("x"), 1000))
	k.add(5000, nil) // what was dropped
	k.add(5000, []byte("the end"))
	if e := k.Excerpt(); string(e.Head) != "hello wo" || string(e.Tail) != " end" || e.All() != 5007 {
		t.Errorf("kept %q and %q of %d", e.Head, e.Tail, e.All())
	}
}

// A guest that lies about offsets gets nothing for it.
func FuzzKept(f *testing.F) {
	f.Add(uint64(0), []byte("a"), uint64(1), []byte("b"))
	f.Add(^uint64(0), []byte("a"), uint64(1)<<63, []byte("b"))
	f.Fuzz(func(t *testing.T, at1 uint64, b1 []byte, at2 uint64, b2 []byte) {
		const limit = 16
		k := kept{excerpt.New(limit, limit)}
		k.add(at1, b1)
		before := k.All()
		k.add(at2, b2)
		e := k.Excerpt()
		if len(e.Head) > limit || len(e.Tail) > limit || k.All() < before || k.All() > maxOutput || e.All() != k.All() || e.Between < 0 {
			t.Errorf("kept %d and %d of %d", len(e.Head), len(e.Tail), k.All())
		}
	})
}

func TestScript(t *testing.T) {
	env := map[string]string{"PATH": "/s3cret", "A": "s3cret"}
	for _, text := range []string{"echo x", "'; rm -rf /", strings.Repeat("x", maxScript+1)} {
		cmd, input := Script(text, "/it's -n $(x)", env)
		line := strings.Join(cmd.GetArgv(), "\x00")
		if strings.Contains(line, "s3cret") || cmd.GetEnv()["A"] != "s3cret" {
			t.Errorf("argv %q", line)
		}
		if long := len(text) > maxScript; long != cmd.GetStdin() || long != (string(input) == text) || long == strings.Contains(line, text) {
			t.Errorf("a text of %d bytes: input %v, argv of %d bytes", len(text), cmd.GetStdin(), len(line))
		}
	}
}

// What a shell makes of it is what was meant, whatever is in a text or a
// directory's name.
func TestScriptRuns(t *testing.T) {
	odd := "it's -n $(touch x) `y`; \"\n\\"
	for name, tt := range map[string]struct {
		text, dir string
		env       map[string]string
		want      string
		code      int
	}{
		"a directory that is missing":   {"pwd", "a/b", nil, "@/a/b\n", 0},
		"an odd one":                    {"pwd", odd, nil, "@/" + odd + "\n", 0},
		"an option":                     {"pwd", "-L", nil, "@/-L\n", 0},
		"PATH":                          {`echo "$PATH ${_CARBOY_PATH-none}"`, "", map[string]string{"PATH": "/usr/bin:/bin:/it's $x"}, "/usr/bin:/bin:/it's $x none\n", 0},
		"a long text":                   {"echo x #" + strings.Repeat("x", maxScript), "", nil, "x\n", 0},
		"a comment":                     {"#!/bin/sh\necho x", "", nil, "x\n", 0},
		"nothing":                       {"", "", nil, "", 0},
		"a document":                    {"cat <<E\n$((1+1))\nE\n", "", nil, "2\n", 0},
		"lines are numbered":            {"\nnosuchprogram 2>&1 | sed 's/[^0-9]//g'", "", nil, "2\n", 0},
		"no arguments":                  {`echo "$# $0"`, "", nil, "0 /bin/sh\n", 0},
		"a status":                      {"exit 7", "", nil, "", 7},
		"a text that is none":           {"echo x; )", "", nil, "", 2},
		"a directory that can't be":     {"echo x", "file/x", nil, "", 1},
		"a text that would end a block": {"}", "", nil, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, input := Script(tt.text, filepath.Join(dir, tt.dir), tt.env)
			c := exec.Command(cmd.GetArgv()[0], cmd.GetArgv()[1:]...)
			c.Dir, c.Env, c.Stdin = dir, []string{"HOME=" + dir}, bytes.NewReader(input)
			for k, v := range cmd.GetEnv() {
				c.Env = append(c.Env, k+"="+v)
			}
			out, _ := c.Output()
			if want := strings.ReplaceAll(tt.want, "@", dir); string(out) != want || c.ProcessState.ExitCode() != tt.code {
				t.Errorf("it is %q and %d, want %q and %d", out, c.ProcessState.ExitCode(), want, tt.code)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "x*")); len(left) > 0 {
				t.Errorf("a name was run: %q", left)
			}
		})
	}
}

// BenchmarkScript is what every command of a session costs before its own
// first line.
func BenchmarkScript(b *testing.B) {
	cmd, _ := Script("true", b.TempDir(), nil)
	for b.Loop() {
		c := exec.Command(cmd.GetArgv()[0], cmd.GetArgv()[1:]...)
		c.Env = []string{"HOME=/nonexistent"}
		if err := c.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
