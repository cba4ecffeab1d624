package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/project"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) projectCommand() *cobra.Command {
	cmd := a.nounCommand("project", "Allow what a project's own file asks for", "carboy project show")
	cmd.AddCommand(a.projectShowCommand(), a.projectAllowCommand(), a.projectDenyCommand())
	return setHelp(cmd, docs{
		long: `A project says in ` + project.Name + ` what its sandboxes are to be like. run and create take it
from the directory that --workspace names, or the nearest above it up to the root of the
repository. What it widens is taken when you have allowed that very text.`,
		examples: []string{"carboy project show", "carboy project allow ~/src/app"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) projectShowCommand() *cobra.Command {
	cmd := a.projectVerb("show", "Show what a project's file asks for, and whether that is allowed", func(ctx context.Context, p *projectFile) error {
		if a.JSON {
			return a.WriteJSON(p.view())
		}
		return p.show()
	})
	return setHelp(cmd, docs{
		long:     "DIR is the directory that --workspace would name; without it, the working directory.",
		examples: []string{"carboy project show", "carboy project show --json ~/src/app"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) projectAllowCommand() *cobra.Command {
	var digest string
	cmd := a.projectVerb("allow", "Allow what a project's file asks for, until it changes", func(ctx context.Context, p *projectFile) error {
		if digest != "" && digest != p.text.Digest {
			return sandbox.Errorf(sandbox.Conflict, "%s: it is not of that digest: it has changed", shell.Word(p.text.Path)).
				WithHint("carboy project show %s", shell.Word(p.dir))
		}
		if err := p.allow(); err != nil || a.JSON {
			if err == nil {
				err = a.WriteJSON(p.view())
			}
			return err
		}
		return p.show()
	})
	cmd.Flags().StringVar(&digest, "digest", "", "`DIGEST` allow it if it is that of the file, as it was shown")
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `It stands for the file as it is, in that directory: one that has changed is asked about
again. It says what was allowed. What was allowed there before is allowed no more.`,
		examples: []string{"carboy project allow", "carboy project allow ~/src/app"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) projectDenyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "deny [flags] [DIR]",
		Short:             "Take back what a project was allowed",
		Args:              rangeArgs(0, "DIR"),
		RunE:              interruptible(func(_ context.Context, args []string) error { return a.projectDeny(dirOr(args)) }),
		ValidArgsFunction: directories,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "A file that is gone or can't be read is no obstacle.",
		examples: []string{"carboy project deny", "carboy project deny ~/src/app"},
		exits:    exitDocsPlain[:],
	})
}

// projectDeny forgets what was allowed wherever dir's file is looked for.
func (a *app) projectDeny(dir string) error {
	var last sandbox.HostDir
	var any bool
	store := project.Approvals{State: a.env.StateDir}
	for _, d := range project.Looked(dir) {
		was, err := store.Delete(d)
		if err != nil {
			return fmt.Errorf("take back what was allowed: %w", err)
		}
		if was || !any {
			last = d
		}
		any = any || was
	}
	p, err := a.openProject(dir)
	switch {
	case err == nil && p == nil && !any:
		return noProject(dir)
	case err == nil && p != nil && a.JSON:
		return a.WriteJSON(p.view())
	case err == nil && p != nil:
		return p.show()
	case err != nil:
		a.Note(err.Error())
	}
	path := filepath.Join(last.Path, project.Name)
	if a.JSON {
		return a.WriteJSON(projectJSON{File: path, Asks: []string{}})
	}
	return a.PrintLine(shell.Word(path) + " is allowed nothing")
}

func noProject(dir string) error {
	return sandbox.Errorf(sandbox.NotFound, "%s: there is no %s, nor above it in its repository", shell.Word(dir), project.Name).
		WithHint("write one: image, limits, allow, caches are some of its keys")
}

// dirOr is the directory that is named, or the working directory.
func dirOr(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return "."
}

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// projectVerb is a command about the file that a directory's sandboxes go by.
func (a *app) projectVerb(verb, short string, f func(ctx context.Context, p *projectFile) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   verb + " [flags] [DIR]",
		Short: short,
		Args:  rangeArgs(0, "DIR"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			dir := dirOr(args)
			p, err := a.openProject(dir)
			if err != nil {
				return err
			}
			if p == nil {
				return noProject(dir)
			}
			return f(ctx, p)
		}),
		ValidArgsFunction: directories,
	}
	a.addJSON(cmd.Flags())
	return cmd
}

// projectFile is a project's file, read once, and what was allowed of it.
type projectFile struct {
	a      *app
	dir    string // as it was named
	text   *project.Text
	file   *project.File
	asks   []string
	before *project.Approval
}

// openProject reads the file that a directory's sandboxes go by; nil where there is
// none.
func (a *app) openProject(dir string) (*projectFile, error) {
	text, err := project.Find(dir)
	if text == nil || err != nil {
		return nil, err
	}
	p := &projectFile{a: a, dir: dir, text: text}
	if p.file, err = project.Parse(text); err != nil {
		return nil, err
	}
	p.asks = p.file.Asks()
	if p.before, err = p.store().Get(text.Dir); err != nil {
		return nil, fmt.Errorf("read what projects are allowed: %w", err)
	}
	return p, nil
}

func (p *projectFile) store() project.Approvals {
	return project.Approvals{State: p.a.env.StateDir}
}

func (p *projectFile) allowed() bool { return len(p.asks) == 0 || p.before.Covers(p.text) }

func (p *projectFile) allow() error {
	if p.a.env.StateDir == "" {
		return sandbox.Errorf(sandbox.Unsupported, "project: there is no directory of state to keep that in").WithHint("set HOME, or XDG_STATE_HOME")
	}
	now := p.a.Now()
	if err := p.store().Put(p.text, p.asks, now); err != nil {
		return fmt.Errorf("keep what is allowed: %w", err)
	}
	p.before = &project.Approval{Dir: p.text.Dir, Digest: p.text.Digest, Asks: p.asks, At: now}
	return nil
}

// projectJSON is a project's file as --json shows it.
type projectJSON struct {
	File    string   `json:"file"`
	Digest  string   `json:"digest"`
	Allowed bool     `json:"allowed"`
	Asks    []string `json:"asks"`             // what it widens
	Before  []string `json:"before,omitempty"` // what was allowed there, of another text
}

func (p *projectFile) view() projectJSON {
	v := projectJSON{File: p.text.Path, Digest: p.text.Digest, Allowed: p.allowed(), Asks: append([]string{}, p.asks...)}
	if !v.Allowed && p.before != nil {
		v.Before = p.before.Asks
	}
	return v
}

// show writes what the file asks for, and whether that is allowed.
func (p *projectFile) show() error {
	for _, l := range p.lines() {
		if err := p.a.PrintLine(l); err != nil {
			return err
		}
	}
	if err := p.a.PrintLine("digest " + p.text.Digest); err != nil || p.allowed() {
		return err
	}
	return p.a.Hint(p.howToAllow())
}

// lines say what the file asks for, beside what was allowed before.
func (p *projectFile) lines() []string {
	path := shell.Word(p.text.Path)
	switch {
	case len(p.asks) == 0:
		return []string{path + " asks for nothing beyond the defaults"}
	case p.allowed():
		return append([]string{path + " is allowed:"}, indent("  ", p.asks)...)
	case p.before == nil:
		return append([]string{path + " asks for:"}, indent("  ", p.asks)...)
	}
	what := " has changed since it was allowed, and asks for:"
	if !p.before.Dir.Same(p.text.Dir) {
		what = " is in another directory than the one that was allowed at its path, and asks for:"
	}
	lines := []string{path + what}
	for _, l := range project.Differ(p.before.Asks, p.asks) {
		lines = append(lines, l.Mark+" "+l.Text)
	}
	return lines
}

func indent(by string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = by + l
	}
	return out
}

func (p *projectFile) howToAllow() string {
	return fmt.Sprintf("carboy project allow --digest %s %s", p.text.Digest, shell.Word(p.dir))
}

// fromProject adds to what was typed what the project's own file says, and tells. What
// it asks for beyond the defaults must have been allowed, or is asked about on the
// terminal.
func (a *app) fromProject(ctx context.Context, fs *pflag.FlagSet, s *launch.Spec) error {
	if s.Workspace == "" || s.NoProject {
		return nil
	}
	dir, ok := launch.WorkspaceDir(s.Workspace)
	if !ok {
		return nil // the request says what is wrong with it
	}
	p, err := a.openProject(dir)
	if p == nil || err != nil {
		return err
	}
	if !p.allowed() {
		if err := p.ask(ctx); err != nil {
			return err
		}
	}
	keys := p.file.Into(s, fs.Changed)
	if len(keys) == 0 {
		return nil
	}
	s.Project = &api.Project{File: p.text.Path, Digest: p.text.Digest, Keys: keys}
	a.NoteReason("project", fmt.Sprintf("%s: %s", shell.Word(p.text.Path), strings.Join(keys, ", ")))
	return nil
}

// ask asks on the terminal whether the file is allowed what it asks for.
func (p *projectFile) ask(ctx context.Context) error {
	a := p.a
	lines := p.lines()
	if !a.CanAsk() {
		asks := make([]string, len(lines)-1)
		for i, l := range lines[1:] {
			asks[i] = strings.TrimSpace(l)
		}
		return sandbox.Errorf(sandbox.Denied, "%s asks for what you have not allowed: %s", shell.Word(p.text.Path), strings.Join(asks, "; ")).
			WithHint("%s, or leave the file out: --no-project", p.howToAllow())
	}
	for i, l := range lines {
		lines[i] = console.Escape(l) + "\n"
	}
	yes, err := a.Yes(ctx, strings.Join(lines, "")+"allow that, until the file changes?")
	if err != nil {
		return err
	}
	if !yes {
		return sandbox.Errorf(sandbox.Denied, "%s is not allowed what it asks for", shell.Word(p.text.Path)).
			WithHint("leave the file out: --no-project")
	}
	return p.allow()
}
