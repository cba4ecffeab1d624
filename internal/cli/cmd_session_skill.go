package cli

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) sessionSkillCommand() *cobra.Command {
	cmd := a.nounCommand("skill", "Look after what agents are taught from", "carboy session skill ls")
	cmd.AddCommand(a.skillInstallCommand(), skillListing().command(a), a.skillRmCommand())
	return setHelp(cmd, docs{
		long: `A skill is a directory with instructions, SKILL.md, and whatever they need. A
session finds those that it is given below /workspace/.skills.`,
		examples: []string{"carboy session skill install pdf-tools.zip"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) skillInstallCommand() *cobra.Command {
	var up client.SkillUpload
	cmd := &cobra.Command{
		Use:   "install [flags] FILE",
		Short: "Install the skills of a zip archive, all or none",
		Args:  exactArgs("FILE"),
		RunE:  interruptible(func(ctx context.Context, args []string) error { return a.skillInstall(ctx, args[0], up) }),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&up.Preview, "preview", false, "show what is in it, and install nothing")
	f.StringVar(&up.SourceSubdir, "subdir", "", "`DIR` look in that directory of the archive")
	f.StringArrayVar(&up.SourcePaths, "path", nil, "`DIR` the path in the archive of one to install, where there are several; more than once")
	a.addJSON(f)
	return setHelp(cmd, docs{
		examples: []string{"carboy session skill install --preview pdf-tools.zip", "carboy session skill install pdf-tools.zip"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) skillInstall(ctx context.Context, name string, up client.SkillUpload) error {
	file, err := beneath.OpenInput(name)
	if errors.Is(err, fs.ErrNotExist) {
		return usage.Errorf("%s: no such file", shell.Word(name))
	}
	if err != nil {
		return usage.Errorf("%s: %v", shell.Word(name), usage.Pathless(err))
	}
	defer func() { _ = file.Close() }() // it was only read
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	up.Filename = filepath.Base(name)
	list, err := svc.InstallSkills(ctx, up, file)
	if err != nil {
		return err
	}
	return skillListing().show(a, list)
}

func skillListing() *listing[sessions.Skill] {
	return &listing[sessions.Skill]{
		noun:    "session skill",
		short:   "List skills",
		get:     (*client.Client).Skills,
		columns: []string{"NAME", "DESCRIPTION"},
		row:     func(s *sessions.Skill, _ time.Time) []string { return []string{s.Name, s.Description} },
	}
}

func (a *app) skillRmCommand() *cobra.Command {
	return removal{
		noun:     "session skill",
		arg:      "NAME",
		example:  "pdf-tools",
		short:    "Delete skills",
		long:     "Sessions that have one lose it with their next command.",
		remove:   (*client.Client).RemoveSkill,
		complete: completing(a, (*client.Client).Skills, func(s *sessions.Skill) string { return s.Name }),
	}.command(a)
}
