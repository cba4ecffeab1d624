package provider_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/provider"
)

func TestParseRefuses(t *testing.T) {
	const way = "[[access.way]]\nname = \"key\"\nreaches = \"x\"\n"
	const secret = "[[access.way.secret]]\nname = \"KEY\"\nheader = \"X-Api-Key\"\n"
	for _, tt := range []struct{ name, text, want string }{
		{"unknown", "titel = 1", "line 1: titel is not known here"},
		{"unknown-below", "[run]\nfoo = 1", "line 2: run.foo is not known here"},
		{"twice", "title = \"a\"\ntitle = \"b\"", "line 2"},
		{"type", "title = [1]", "line 1"},
		{"program", "program = \"a/b\"", "no name of a program"},
		{"prompt-mode", "[run]\nprompt_mode = \"shout\"\nprompt = [\"x\"]", "run.prompt_mode"},
		{"prompt-alone", "[run]\nprompt = [\"x\"]", "go together"},
		{"config", "[config]\ndir = \"../up\"", "line 2: config.dir: \"../up\" is not a directory below the home"},
		{"config-home", "[config]\n\ndir = \"~\"", "line 3: config.dir: \"~\" is not"},
		{"config-above", "[config]\ndir = \"~/../up\"", "line 2: config.dir: "},
		{"config-inline", "title = \"x\"\nconfig = {dir = \"/x\"}", "line 2: config.dir: "},
		{"package", "[package]\nsteps = [\"x\"]", "package: version"},
		{"package-path", "[package]\nsteps = [\"x\"]\nversion = \"1\"\nimage = \"i\"\nneeds = \"n\"\npath = \"../x\"", "package.path"},
		{"version", "[package]\nsteps = [\"x\"]\nversion = \"1;rm\"\nimage = \"i\"\nneeds = \"n\"\npath = \"x\"", "not a version"},
		{"way-without-rules", way + secret, "a preset, or rules"},
		{"way-without-secret", way + "preset = \"openai\"\n", "its first secret"},
		{"refuses", way + "preset = \"openai\"\nrefuses = [200]\n" + secret, "line 2: access.way key: refuses: a status that refuses"},
		{"unknown-preset", way + "preset = \"none\"\n" + secret, "line 2: access.way key: \"none\" is no preset"},
		{"rule", way + "[[access.way.rule]]\nhost = \"x\"\n" + secret, "host"},
		{"secret-name", way + "preset = \"openai\"\n[[access.way.secret]]\nname = \"a b\"\nheader = \"X\"\n", "no name of a secret"},
		{"secret-file", way + "preset = \"openai\"\n" + secret + "file = \"~/x\"\n", "file and pointer"},
		{"reach", "[reach]\npresets = [\"none\"]", "reach"},
		{"dir", "[[dir]]\npath = \"/x\"", "needs a path, an error"},
		{"mode", "[[dir]]\npath = \"/x\"\nerror = \"e\"\nmode = \"999\"", "octal"},
		{"file-way", "[[file]]\npath = \"/x\"\nerror = \"e\"\n[[file]]\npath = \"/y\"\nerror = \"e\"\nway = \"none\"", "line 5: file \"/y\": it needs a path, an error, a way that there is"},
		{"relative", "[[file]]\npath = \"x\"\nerror = \"e\"", "not a clean absolute path"},
		{"template", "[[file]]\npath = \"/x\"\nerror = \"e\"\ncontent = \"{{.Nothing}}\"", "Nothing"},
		{"secret-elsewhere", "[[file]]\npath = \"/x\"\nerror = \"e\"\ncontent = \"{{.Secret \\\"KEY\\\"}}\"", "the sandbox has none of that name"},
		{"merge", "[[file]]\npath = \"/x\"\nerror = \"e\"\nmerge = true\ncontent = \"no\"", "no JSON object"},
		{"endless", "[[file]]\npath = \"/x\"\nerror = \"e\"\ncontent = \"{{printf `%2000000d` 1}}\"", "printf: it takes"},
		{"command", "[[verify]]\nargv = []\nerror = \"e\"", "needs an argv"},
		{"deep", "x = " + strings.Repeat("[", 1000), "nested too deeply"},
		{"large", strings.Repeat("#\n", 1<<18), "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := provider.Parse("x", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, err := provider.Parse("../x", nil); err == nil {
		t.Error("a name that is a path was taken")
	}
}

// TestConfigBelowTheHome holds that the home may be named before what is below it anyway.
func TestConfigBelowTheHome(t *testing.T) {
	for _, dir := range []string{".x", "~/.x"} {
		p, err := provider.Parse("x", []byte("program = \"x\"\n[config]\ndir = \""+dir+"\"\nkeep = [\"{{.Config}}\"]\n[access]\nnone = true\n"))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := p.Kept(&provider.Inside{Home: "/home/user"})
		if err != nil || len(kept) != 1 || kept[0] != "/home/user/.x" {
			t.Errorf("%s: %q, %v", dir, kept, err)
		}
	}
}

// FuzzParse looks that no file makes a parser fail, and that what it takes can be planned.
func FuzzParse(f *testing.F) {
	list, bad := provider.List("")
	if len(bad) > 0 {
		f.Fatal(bad)
	}
	for _, p := range list {
		b, err := provider.Text(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("program = \"x\"\n[access]\nnone = true\n[[file]]\npath = \"~/x\"\ncontent = \"{{.Home | json}}\"\nerror = \"e\"\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := provider.Parse("fuzzed", b)
		if err != nil {
			return
		}
		in := &provider.Inside{Home: "/home/user", Workspace: "/workspace", Program: []string{"/p"}}
		if len(p.Access.Ways) > 0 {
			in = inside(&p.Access.Ways[0])
		}
		if _, err := p.Plan(in); err != nil {
			t.Errorf("what was parsed can't be planned: %v", err)
		}
	})
}
