package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Inside is what a plan depends on: the sandbox, and what was asked for.
type Inside struct {
	Home      string // of the user
	Workspace string
	Dir       string            // where the program starts; "": Workspace
	Program   []string          // how it is called there
	Env       map[string]string // of the sandbox, what a user asked for included
	Bypass    bool
	Ways      []*Way

	// Placeholders stand for the secrets, by name.
	Placeholders map[string]string
	// Facts are what is known of the login, and no secret.
	Facts map[string]string
	// Prompt is a prompt that is to be a file at PromptFile; "": there is none.
	Prompt, PromptFile string

	// Image, Dockerfile and Instance are told in the plan, and change nothing.
	Image, Dockerfile, Instance string
}

// Plan is what is done in a sandbox before an agent starts in it.
type Plan struct {
	Template   string            `json:"template"` // the provider's name
	Command    string            `json:"command"`
	PromptMode string            `json:"prompt_mode"`
	Image      string            `json:"image"`
	Dockerfile string            `json:"dockerfile"`
	GuestHome  string            `json:"guest_home"`
	Instance   string            `json:"instance_name"`
	PromptFile string            `json:"prompt_file"`
	GuestEnv   map[string]string `json:"guest_env"`
	Dirs       []PlannedDir      `json:"dirs"`
	Files      []PlannedFile     `json:"files"`
	PreCopy    []PlannedCommand  `json:"pre_copy"`
	Verify     []PlannedCommand  `json:"verify"`
}

// PlannedDir is a directory that is made, and Error what is said where that fails.
type PlannedDir struct {
	Path  string      `json:"path"`
	Mode  fs.FileMode `json:"mode"`
	Error string      `json:"error"`
}

// PlannedFile is a file that is written.
type PlannedFile struct {
	Path    string      `json:"path"`
	Mode    fs.FileMode `json:"mode"`
	Content string      `json:"content"`
	Merge   bool        `json:"merge,omitempty"` // both are JSON: it is laid over what is there
	Error   string      `json:"error"`
}

// PlannedCommand is a command that must succeed.
type PlannedCommand struct {
	Argv  []string `json:"argv"`
	Error string   `json:"error"`
}

// values are what templates know in a sandbox.
func (p *Provider) values(in *Inside) *Values {
	v := &Values{
		Home: in.Home, Workspace: in.Workspace, Dir: in.Dir, Bypass: in.Bypass,
		PromptFile: in.PromptFile, Version: p.Package.Version,
		placeholders: in.Placeholders, names: slices.Sorted(maps.Keys(in.Placeholders)), facts: in.Facts,
	}
	if len(in.Program) > 0 {
		v.Program = in.Program[0]
	}
	if v.Dir == "" {
		v.Dir = v.Workspace
	}
	if len(in.Ways) > 0 {
		v.Way = in.Ways[0].Name
	}
	if p.Config.Dir != "" {
		v.Config = path.Join(v.Home, p.Config.Dir)
	}
	if moved := in.Env[p.Config.Variable]; p.Config.Variable != "" && moved != "" {
		v.Config = moved
	}
	return v
}

// GuestEnv are the provider's variables, for the sandbox; what in.Env says goes before.
func (p *Provider) GuestEnv(in *Inside) (map[string]string, error) {
	v := p.values(in)
	env := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		text, err := v.text("env."+name, p.Env[name])
		if err != nil {
			return nil, err
		}
		env[name] = text
	}
	maps.Copy(env, in.Env)
	return env, nil
}

// SkillsDir is the directory inside in which the program looks for skills; "": it has none.
func (p *Provider) SkillsDir(in *Inside) (string, error) {
	if p.Config.Skills == "" {
		return "", nil
	}
	return p.values(in).place("config.skills", p.Config.Skills)
}

// Kept are the directories inside that are to outlive the sandbox.
func (p *Provider) Kept(in *Inside) ([]string, error) {
	v := p.values(in)
	var out []string
	for _, s := range p.Config.Keep {
		dir, err := v.place("config.keep", s)
		if err != nil {
			return nil, err
		}
		out = append(out, dir)
	}
	return out, nil
}

// Plan says what is to be done in a sandbox. It asks nothing and does nothing.
func (p *Provider) Plan(in *Inside) (*Plan, error) {
	env, err := p.GuestEnv(in)
	if err != nil {
		return nil, err
	}
	v := p.values(in)
	plan := &Plan{
		Template: p.Name, Command: v.Program, PromptMode: p.Run.PromptMode, Image: in.Image, Dockerfile: in.Dockerfile,
		GuestHome: in.Home, Instance: in.Instance, PromptFile: in.PromptFile, GuestEnv: env,
		Dirs: []PlannedDir{}, Files: []PlannedFile{},
	}
	for _, d := range p.Dirs {
		planned := PlannedDir{Error: d.Error}
		if planned.Path, err = v.place("dir", d.Path); err == nil {
			planned.Mode, err = mode(d.Mode, 0o755)
		}
		if err != nil {
			return nil, err
		}
		plan.Dirs = append(plan.Dirs, planned)
	}
	if plan.Files, err = p.plannedFiles(v, in); err != nil {
		return nil, err
	}
	if plan.PreCopy, err = plannedCommands("pre_copy", v, in, p.PreCopy); err != nil {
		return nil, err
	}
	plan.Verify, err = plannedCommands("verify", v, in, p.Verify)
	return plan, err
}

// taken reports whether what belongs to a way is wanted; "" belongs to all.
func (in *Inside) taken(way string) bool {
	return way == "" || slices.ContainsFunc(in.Ways, func(w *Way) bool { return w.Name == way })
}

func (p *Provider) plannedFiles(v *Values, in *Inside) ([]PlannedFile, error) {
	files := []PlannedFile{}
	for _, f := range p.Files {
		if !in.taken(f.Way) {
			continue
		}
		planned := PlannedFile{Merge: f.Merge, Error: f.Error}
		var err error
		if planned.Path, err = v.place("file", f.Path); err != nil {
			return nil, err
		}
		if planned.Mode, err = mode(f.Mode, 0o644); err != nil {
			return nil, err
		}
		if planned.Content, err = v.text("file "+f.Path, f.Content); err != nil {
			return nil, err
		}
		if f.Merge {
			if _, err := object([]byte(planned.Content)); err != nil {
				return nil, fmt.Errorf("file %s: merge: the content is no JSON object: %w", f.Path, err)
			}
		}
		files = append(files, planned)
	}
	if in.Prompt != "" {
		files = append(files, PlannedFile{Path: in.PromptFile, Mode: 0o644, Content: in.Prompt, Error: "the prompt can't be written"})
	}
	return files, nil
}

// programWord stands at the beginning of a command for all words of the program's.
const programWord = "{{.Program}}"

func plannedCommands(what string, v *Values, in *Inside, list []Command) ([]PlannedCommand, error) {
	out := []PlannedCommand{}
	for _, c := range list {
		if !in.taken(c.Way) {
			continue
		}
		argv, err := v.texts(what, c.Argv)
		if err != nil {
			return nil, err
		}
		if c.Argv[0] == programWord {
			argv = append(slices.Clone(in.Program), argv[1:]...) // an interpreter and a script, it may be
		}
		out = append(out, PlannedCommand{Argv: argv, Error: c.Error})
	}
	return out, nil
}

// object reads a JSON object, and nothing after it.
func object(b []byte) (map[string]any, error) {
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&m); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, fmt.Errorf("there is something after it")
	}
	if m == nil {
		return nil, fmt.Errorf("it is null")
	}
	return m, nil
}

// Merged is the JSON object over, laid over what is there: objects are joined, and
// anything else is replaced. Where what is there is no object, over stands alone. What is
// there is a guest's, of any depth: it is neither taken apart further than over goes, nor indented.
func Merged(there []byte, over string) (string, error) {
	top, err := object([]byte(over))
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(laid(there, top))
	return string(b) + "\n", err
}

func laid(there []byte, top map[string]any) map[string]any {
	var below map[string]json.RawMessage
	if json.Unmarshal(there, &below) != nil {
		return top
	}
	out := make(map[string]any, len(below)+len(top))
	for k, v := range below {
		out[k] = v
	}
	for k, v := range top {
		if m, ok := v.(map[string]any); ok && below[k] != nil {
			v = laid(below[k], m)
		}
		out[k] = v
	}
	return out
}

// Start says how a program is to be started.
type Start struct {
	Resume bool   // with its last conversation
	Remote bool   // so that it can be led from elsewhere
	Prompt string // the path inside of a prompt that is a file
}

// Argv is the command line of the program: what starts it, what the provider's file
// says, and the user's own arguments.
func (p *Provider) Argv(program []string, in *Inside, s Start, args []string) ([]string, error) {
	v := p.values(in)
	v.PromptFile = s.Prompt
	var list []string
	if in.Bypass {
		list = append(list, p.Run.Bypass...)
	}
	// A command of the program's own, such as codex exec, has its own word for that.
	if s.Resume && !(len(args) > 0 && !strings.HasPrefix(args[0], "-") && p.NeedsNoTerminal(args[:1])) {
		list = append(list, p.Run.Resume...)
	}
	if s.Remote {
		list = append(list, p.Run.Remote...)
	}
	if s.Prompt != "" {
		list = append(list, p.Run.Prompt...)
	}
	own, err := v.texts("run", list)
	if err != nil {
		return nil, err
	}
	return slices.Concat(program, own, args), nil
}

// NeedsNoTerminal reports whether the program, with those arguments, is not for a screen.
func (p *Provider) NeedsNoTerminal(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(p.Run.Headless, a) })
}
