package provider_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/provider"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestPlans holds what is done in a sandbox for each agent and way to what it was.
func TestPlans(t *testing.T) {
	list, bad := provider.List("")
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	for _, p := range list {
		for i := range p.Access.Ways {
			w := &p.Access.Ways[i]
			t.Run(p.Name+"-"+w.Name, func(t *testing.T) {
				in := inside(w)
				plan, err := p.Plan(in)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range plan.Files {
					if strings.HasSuffix(f.Path, ".json") && !json.Valid([]byte(f.Content)) {
						t.Errorf("%s is no JSON:\n%s", f.Path, f.Content)
					}
				}
				argv, err := p.Argv(in.Program, in, provider.Start{Resume: true, Remote: true, Prompt: "/home/user/prompt.md"}, []string{"-p", "fix"})
				if err != nil {
					t.Fatal(err)
				}
				golden(t, p.Name+"-"+w.Name, struct {
					Plan *provider.Plan `json:"plan"`
					Argv []string       `json:"argv"`
				}{plan, argv})
			})
		}
	}
}

func inside(w *provider.Way) *provider.Inside {
	in := &provider.Inside{
		Home: "/home/user", Workspace: "/workspace", Dir: "/workspace/sub", Program: []string{"/opt/node", "/opt/program"},
		Bypass: true, Ways: []*provider.Way{w}, Placeholders: map[string]string{}, Facts: map[string]string{},
		Instance: "otter", Image: "host",
	}
	for _, s := range w.Secrets {
		in.Placeholders[s.Name] = "carboy_secret_" + strings.ToLower(s.Name) + "_0123456789abcdef0123456789abcdef"
	}
	for _, f := range w.Facts {
		in.Facts[f.Name] = "fact-" + f.Name
	}
	return in
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	file := filepath.Join("testdata", "plan", name+".json")
	if *update {
		write(t, file, string(b))
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(b)); d != "" {
		t.Error(d)
	}
}

// TestConfigMoved heeds the variable that names another directory inside.
func TestConfigMoved(t *testing.T) {
	p, err := provider.Find("", "codex")
	if err != nil {
		t.Fatal(err)
	}
	in := inside(&p.Access.Ways[0])
	in.Env = map[string]string{"CODEX_HOME": "/home/user/other"}
	plan, err := p.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Dirs[0].Path != "/home/user/other" || plan.Files[0].Path != "/home/user/other/config.toml" || plan.PreCopy[0].Argv[1] != "/home/user/other" {
		t.Errorf("CODEX_HOME is not heeded: %+v", plan)
	}
	in.Env["CODEX_HOME"] = "../up"
	if _, err := p.Plan(in); err == nil {
		t.Error("a directory that is no absolute path was taken")
	}
}

func TestMerged(t *testing.T) {
	for _, tt := range []struct{ name, there, over, want string }{
		{"new", "", `{"a":1}`, `{"a":1}`},
		{"joined", `{"a":{"b":1,"c":2},"d":9007199254740993}`, `{"a":{"b":3}}`, `{"a":{"b":3,"c":2},"d":9007199254740993}`},
		{"replaced", `{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		{"not-json", `{"a":`, `{"a":1}`, `{"a":1}`},
		{"no-object", `[1]`, `{"a":1}`, `{"a":1}`},
		{"null", `null`, `{"a":1}`, `{"a":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := provider.Merged([]byte(tt.there), tt.over)
			if err != nil {
				t.Fatal(err)
			}
			var compact strings.Builder
			for _, r := range got {
				if r != ' ' && r != '\n' {
					compact.WriteRune(r)
				}
			}
			if compact.String() != tt.want {
				t.Errorf("%s, want %s", compact.String(), tt.want)
			}
		})
	}
}

// TestMergedIsNoLarger: what a guest leaves where a file is merged into grows by what is laid over it
// alone, however deep it is.
func TestMergedIsNoLarger(t *testing.T) {
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	there := `{"deep":[` + strings.Repeat(deep+",", 20) + `0]}`
	got, err := provider.Merged([]byte(there), `{"a":1}`)
	if err != nil || !strings.Contains(got, deep) || len(got) > len(there)+10 {
		t.Errorf("%d bytes became %d: %v", len(there), len(got), err)
	}
}

// TestTextsEnd: whoever asks for a set-up writes its texts, and none of them takes for ever or grows without
// end.
func TestTextsEnd(t *testing.T) {
	many := strings.Repeat("{{json .Dir}}", 200)
	for text, want := range map[string]string{
		"{{range 1000000000}}{{end}}":                           "range and template are not for here",
		`{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`: "define and block are not for here",
		`{{$a := "x"}}`:            "variables are not for here",
		many:                       "more than 128 calls",
		`{{printf "%1000000d" 1}}`: "printf: it takes %s",
		`{{print .Dir}}`:           "there is no such function here",
		`{{if .Has "x"}}{{range 9}}{{end}}{{end}}`:     "range and template are not for here",
		`{{last 3 (json (printf "%s%s" .Dir .Home))}}`: "",
	} {
		toml := "title = \"A\"\nabout = \"a\"\nprogram = \"a\"\n[access]\nnone = true\n[[file]]\npath = \"~/a\"\nerror = \"e\"\ncontent = '''" + text + "'''\n"
		_, err := provider.Parse("a", []byte(toml))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}
