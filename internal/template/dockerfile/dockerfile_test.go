package dockerfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/template/dockerfile"
)

func TestParse(t *testing.T) {
	got, err := dockerfile.Parse(`# syntax=docker/dockerfile:1
ARG VERSION=12
FROM debian:${VERSION} AS base
ARG WHO=nobody
RUN apt-get update && \
    # a comment within
    apt-get install -y hello
RUN ["printf", "it's"]
COPY --chown=user --chmod=0644 a.txt b.txt /srv/
ENV A=1 B="two words" C=$A
ENV OLD the old way
WORKDIR /app
USER app
ENTRYPOINT ["serve", "--port"]
CMD ["80"]
`, map[string]string{"WHO": "ann"})
	if err != nil {
		t.Fatal(err)
	}
	step := func(kind string, args ...string) dockerfile.Step { return dockerfile.Step{Type: kind, Args: args} }
	copied := func(src string) dockerfile.Step {
		return dockerfile.Step{Type: "COPY", Src: src, Dest: "/srv/", Owner: "user", Mode: "0644"}
	}
	want := dockerfile.File{From: "debian:12", Start: "'serve' '--port' '80'", Steps: []dockerfile.Step{
		step("USER", "root"), step("WORKDIR", "/"), step("ARG", "WHO", "ann"),
		step("RUN", "apt-get update &&     apt-get install -y hello"), step("RUN", `'printf' 'it'\''s'`),
		copied("a.txt"), copied("b.txt"), step("ENV", "A", "1", "B", "two words", "C", "$A"), step("ENV", "OLD", "the old way"),
		step("WORKDIR", "/app"), step("USER", "app"),
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(dockerfile.Step{}, "Line")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"nothing", "", "no FROM"},
		{"run-first", "RUN true", "line 1: RUN before FROM"},
		{"two-stages", "FROM a\nFROM b", "line 2: FROM: a template's build has one stage"},
		{"add", "FROM a\nADD x /", "line 2: ADD"},
		{"healthcheck", "FROM a\n\nHEALTHCHECK CMD true", "line 3: HEALTHCHECK"},
		{"mount", "FROM a\nRUN --mount=type=cache,target=/x true", "line 2: RUN: the flag"},
		{"copy-from", "FROM a\nCOPY --from=b /x /y", "--from"},
		{"here", "FROM a\nRUN cat <<EOF\nx\nEOF", "line 2: RUN: here documents"},
		{"several-into-a-file", "FROM a\nCOPY a b /c", "go into a directory"},
		{"quoted-dollar", "FROM a\nENV X='$HOME'", "line 2: a $ that is quoted"},
		{"open-quote", "FROM a\nENV X=\"1", "without its end"},
		{"unknown-arg", "FROM $X", "no ARG before it"},
		{"platform", "FROM --platform=linux/arm64 a", "the flag"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := dockerfile.Parse(tt.text, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse = %v, want %q in it", err, tt.want)
			}
		})
	}
	if _, err := dockerfile.Parse("FROM a", map[string]string{"X": "1"}); err == nil {
		t.Error("a value that no ARG takes was ignored")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"FROM a\nRUN b \\\n c", "ARG A=1\nFROM $A\nENV B=\"c\\\"d\" E='f'", "FROM a\nCOPY [\"x\",\"y\"]\nCMD [", "FROM a\nENTRYPOINT x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := dockerfile.Parse(text, nil)
		if err != nil {
			return
		}
		if got.From == "" || len(got.Steps) < 2 {
			t.Errorf("%q: %+v", text, got)
		}
		for _, st := range got.Steps {
			if st.Type == "COPY" && (st.Src == "" && st.Dest == "") || strings.ContainsRune(strings.Join(st.Args, ""), 0) {
				t.Errorf("%q: %+v", text, st)
			}
		}
	})
}

func TestContext(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "1", "b.txt": "2", "sub/c.txt": "3", "sub/skip.log": "4", ".dockerignore": "**/*.log\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "sub/link")); err != nil {
		t.Fatal(err)
	}
	c, err := dockerfile.OpenContext(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for src, want := range map[string][]string{
		"*.txt": {"a.txt", "b.txt"}, "sub": {"sub", "sub/c.txt", "sub/link"}, "./a.txt": {"a.txt"}, "nothing": nil, "../x": nil, "sub/../../x": nil,
	} {
		got, err := c.Files(src)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("Files(%q): %v (-want +got):\n%s", src, err, diff)
		}
	}
	names, _ := c.Files("sub")
	one, err := c.Hash(dockerfile.Step{Src: "sub"}, names)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub/c.txt"), []byte("5"), 0o644); err != nil {
		t.Fatal(err)
	}
	if two, err := c.Hash(dockerfile.Step{Src: "sub"}, names); err != nil || one == two {
		t.Errorf("the hash stays %s (%v) although a file changed", one, err)
	}
}
