package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [flags]",
		Short: "Write a bottle and an agent for each coding agent that is installed here",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.init(ctx)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Claude Code, Codex, Gemini CLI, opencode and aider are looked for as carboy claude and the
like look for them. The files are yours to change, and say what they may: what is there already,
by that name, stays as it is. Commits carry the name and e-mail of git config --global.`,
		examples: []string{"carboy init", "carboy init && carboy up --plan claude"},
		exits:    exitDocsPlain[:],
	})
}

// initJSON is what was done for one agent.
type initJSON struct {
	Agent   string   `json:"agent"`
	Program string   `json:"program"`
	Written []string `json:"written"`
	Kept    []string `json:"kept"` // what was there
}

func (a *app) init(ctx context.Context) error {
	x, _ := a.loadManifest(ctx, false) // a file with a mistake is left as it is
	if err := x.Refused(); err != nil {
		return manifest.Told(err)
	}
	var user manifest.GitUser
	user.Name, user.Email = repository.Identity(ctx)
	out := a.outside(a.storedSecrets(ctx), nil)
	all := []initJSON{}
	for _, c := range agentCommands {
		p, err := provider.Find(a.env.AgentsDir, c.name)
		if err != nil {
			a.NoteReason("agent", c.name+": left out: "+err.Error())
			continue
		}
		in, err := p.FindProgram(out, bottle.Home(""))
		if err != nil || in == nil {
			continue // what can't be used is not here
		}
		done := initJSON{Agent: p.Name, Program: in.Path, Written: []string{}, Kept: []string{}}
		if err := a.draft(x, p, out, user, &done); err != nil {
			return err
		}
		all = append(all, done)
	}
	if len(all) == 0 {
		return sandbox.Errorf(sandbox.NotFound, "no coding agent is installed here: claude, codex, gemini, opencode and aider were looked for").
			WithHint("install one, or write %s and %s", filepath.Join(a.env.ConfigDir, "bottles", "NAME.md"), filepath.Join(a.env.ConfigDir, "agents", "NAME.md"))
	}
	if a.JSON {
		return a.WriteJSON(all)
	}
	return a.tellInit(all)
}

func (a *app) tellInit(all []initJSON) error {
	for _, d := range all {
		line := d.Agent + " (" + d.Program + "): "
		if len(d.Written) > 0 {
			line += "wrote " + strings.Join(d.Written, ", ")
		} else {
			line += "nothing to write, it is there"
		}
		if err := a.PrintLine(line); err != nil {
			return err
		}
	}
	return a.PrintLine("next: carboy up --plan " + all[0].Agent + ", then in a repository carboy up " + all[0].Agent)
}

// draft writes the two files of an agent, where nothing has its name. On an error neither is left.
func (a *app) draft(x *manifest.Index, p *provider.Provider, out *provider.Outside, user manifest.GitUser, done *initJSON) error {
	var ways []*provider.Way
	if g, err := p.Grant(out); err == nil {
		ways = g.Ways
	}
	d, err := manifest.DraftOf(p, ways, user)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		dir, text string
		there     bool
	}{
		{"bottles", d.Bottle, x.HasBottle(p.Name)}, {"agents", d.Agent, x.Has(p.Name)},
	} {
		file := filepath.Join(a.env.ConfigDir, f.dir, p.Name+".md")
		err := fs.ErrExist
		if !f.there {
			err = writeNew(file, f.text)
		}
		switch {
		case errors.Is(err, fs.ErrExist):
			done.Kept = append(done.Kept, file)
		case err != nil:
			for _, written := range done.Written {
				err = errors.Join(err, os.Remove(written)) // it was made here
			}
			return fmt.Errorf("write %s: %w", shell.Word(file), usage.Pathless(err))
		default:
			done.Written = append(done.Written, file)
		}
	}
	return nil
}

// writeNew writes a file that is not there.
func writeNew(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(file) // it was made here
	}
	return err
}
