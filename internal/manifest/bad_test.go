package manifest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// badWorld has good files beside bad ones, in the configuration and in a repository.
func badWorld(t *testing.T) manifest.Sources {
	t.Helper()
	s := manifest.Sources{Config: t.TempDir(), Repository: t.TempDir()}
	write(t, s.Config, map[string]string{
		"bottles/good.md":      "---\n---\n",
		"bottles/bad.md":       "---\nimag: x\n---\n",
		"bottles/worse.md":     "---\nextends: bad\n---\n",
		"bottles/none.md":      "---\nextends: nosuch\n---\n",
		"bottles/twice.md":     "---\n---\n",
		"bottles/twice.json":   "{}",
		"agents/fine.md":       "---\nbottle: good\nprovider: custom\n---\n",
		"agents/x.md":          "---\nbotle: good\n---\n",
		"agents/inbad.md":      "---\nbottle: bad\nprovider: custom\n---\n",
		"agents/inworse.md":    "---\nbottle: worse\nprovider: custom\n---\n",
		"agents/intwice.md":    "---\nbottle: twice\nprovider: custom\n---\n",
		"agents/odd.md":        "---\nbottle: good\nprovider: oddity\n---\n",
		"agents/oddity.toml":   "progam = \"x\"\n",
		"manifest.json":        `{"bottles": {"seed": {}, "rotten": {"imag": 1}}, "agents": {"seeded": {"bottle": "seed", "provider": "custom"}, "rot": {"bottle": "rotten", "provider": "custom"}}}`,
		"agents/elsewhere.txt": "nothing",
	})
	write(t, s.Repository, map[string]string{
		".carboy/agents/x.md":      "---\nbottle: good\nprovider: custom\n---\n", // not in the place of the user's
		".carboy/agents/theirs.md": "---\nbottle: good\nprovider: custom\n---\n",
		".carboy/agents/broken.md": "---\nbottle: good\n",
	})
	return s
}

// TestOneBadFile: what is wrong with a file fails what needs that one, with the file's own mistake.
func TestOneBadFile(t *testing.T) {
	s := badWorld(t)
	x, err := manifest.Load(s)
	if n := len(manifest.Problems(err)); n != 7 {
		t.Errorf("%d mistakes: %v", n, err)
	}
	for agent, want := range map[string]string{
		"fine": "", "theirs": "", "seeded": "",
		"x":       `C/agents/x.md:2:1: unknown key "botle" (did you mean bottle?)`,
		"inbad":   `C/bottles/bad.md:2:1: unknown key "imag" (did you mean image?)`,
		"inworse": `C/bottles/bad.md:2:1: unknown key "imag" (did you mean image?)`,
		"intwice": `C/bottles/twice.md:1:1: the bottle twice is there twice: C/bottles/twice.json:1:1 (keep one of them)`,
		"odd":     `C/agents/odd.md:3:1: C/agents/oddity.toml: line 1: progam is not known here (did you mean program?)`,
		"rot":     `C/manifest.json:1:37: unknown key "imag" in bottles.rotten (did you mean image?)`,
		"broken":  `R/.carboy/agents/broken.md:1:1: the front matter has no end: a line of --- is missing`,
		"nosuch":  `agent "nosuch": there is none of that name`,
	} {
		m, err := x.Manifest(agent)
		got := ""
		if err != nil {
			got = strings.NewReplacer(s.Config, "C", s.Repository, "R").Replace(err.Error())
		}
		if got != want || (m == nil) != (want != "") {
			t.Errorf("%s: got %s, want %s", agent, got, want)
		}
	}
	if m, err := x.Manifest("x"); m != nil || sandbox.KindOf(err) == sandbox.NotFound {
		t.Errorf("a repository's agent takes the place of a bad one of the user's: %v", err)
	}
	var listed []string
	l := x.List()
	for _, b := range l.Bottles {
		listed = append(listed, b.Name+mark(b.Error))
	}
	for _, a := range l.Agents {
		listed = append(listed, a.Name+mark(a.Error))
	}
	if want := strings.Fields("bad! good none! rotten! seed twice! worse! broken! fine inbad! intwice! inworse! odd! rot! seeded theirs x!"); !slices.Equal(listed, want) {
		t.Errorf("listed %v, want %v", listed, want)
	}
}

func mark(err string) string {
	if err != "" {
		return "!"
	}
	return ""
}

// TestLost: what may be in what can't be read is not taken from a repository.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(config string) error
		want  string
	}{
		"object":      {func(c string) error { return os.WriteFile(c+"/manifest.json", []byte("{"), 0o600) }, "neither YAML nor JSON"},
		"agents":      {func(c string) error { return os.Chmod(c+"/agents", 0o777) }, "others may write to it"},
		"no link":     {func(c string) error { return swap(c+"/agents", c+"/nowhere") }, "a link that leads nowhere"},
		"many":        {func(c string) error { return many(c + "/agents") }, "1000 are the most"},
		"as it is":    {func(string) error { return nil }, ""},
		"other files": {func(c string) error { return os.WriteFile(c+"/agents/y.md", nil, 0o600) }, ""},
	} {
		s := badWorld(t)
		if err := c.spoil(s.Config); err != nil {
			t.Fatal(err)
		}
		x, _ := manifest.Load(s)
		_, err := x.Manifest("theirs")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func swap(at, target string) error {
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return os.Symlink(target, at)
}

func many(dir string) error {
	for i := range 1001 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("many%d.md", i)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TestLinks: links of the user's own configuration are followed, and are what they lead to.
func TestLinks(t *testing.T) {
	dotfiles := config(t, map[string]string{"b.md": "---\n---\n", "agents/a.md": "---\nbottle: b\nprovider: custom\n---\n"})
	dir := config(t, map[string]string{"bottles/other.md": "---\n---\n"})
	for at, target := range map[string]string{"bottles/b.md": "b.md", "agents": "agents"} {
		if err := os.Symlink(filepath.Join(dotfiles, target), filepath.Join(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := manifest.Load(manifest.Sources{Config: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Load(manifest.Sources{Config: dir, Files: []string{filepath.Join(dir, "bottles/b.md")}}); err != nil {
		t.Errorf("by its name: %v", err)
	}
	link := filepath.Join(t.TempDir(), "c.md")
	if err := os.Symlink(filepath.Join(dotfiles, "b.md"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Load(manifest.Sources{Config: dir, Files: []string{link}}); err == nil || err.Error() != link+": it is a link, which is not followed: a sandbox may have made it" {
		t.Errorf("a link elsewhere: %v", err)
	}
	if err := os.Chmod(filepath.Join(dotfiles, "b.md"), 0o646); err != nil {
		t.Fatal(err)
	}
	x, _ := manifest.Load(manifest.Sources{Config: dir})
	own := filepath.Join(dir, "bottles/b.md")
	if _, err := x.Manifest("a"); err == nil || err.Error() != own+": others may write to it (chmod go-w "+own+")" {
		t.Errorf("what a link leads to: %v", err)
	}
}
