package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/client"
)

func (a *app) boxSkillCommand() *cobra.Command {
	cmd := a.nounCommand("skill", "Look after what agents are taught from", "carboy box skill ls")
	cmd.AddCommand(a.skillInstallCommand(), a.skillLsCommand(), a.skillRmCommand())
	return setHelp(cmd, docs{
		long: `A skill is a directory with instructions, SKILL.md, and whatever they need. A
session finds those that it is given below /workspace/.skills.`,
		examples: []string{"carboy box skill install pdf-tools.zip"},
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
	f.StringVar(&up.SourceSubdir, "subdir", "", "look in that directory of the archive")
	f.StringArrayVar(&up.SourcePaths, "path", nil, "the path in the archive of one to install, where there are several; more than once")
	a.addJSON(f)
	return setHelp(cmd, docs{
		examples: []string{"carboy box skill install --preview pdf-tools.zip", "carboy box skill install pdf-tools.zip"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) skillInstall(ctx context.Context, name string, up client.SkillUpload) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%s: no such file", quoteArg(name))
	}
	if err != nil {
		return usagef("%s: %v", quoteArg(name), pathless(err))
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
	return a.showSkills(list)
}

func (a *app) skillLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls [flags]",
		Short:             "List skills",
		Args:              exactArgs(),
		RunE:              interruptible(func(ctx context.Context, _ []string) error { return a.skillLs(ctx) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{examples: []string{"carboy box skill ls"}, exits: exitDocsPlain[:]})
}

func (a *app) skillLs(ctx context.Context) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	list, err := svc.Skills(ctx)
	if err != nil {
		return err
	}
	return a.showSkills(list)
}

func (a *app) showSkills(list []box.Skill) error {
	if a.json {
		if list == nil {
			list = []box.Skill{}
		}
		return writeJSON(a.env.Stdout, list)
	}
	var t table
	t.row("NAME", "DESCRIPTION")
	for _, s := range list {
		t.row(s.Name, s.Description)
	}
	return t.write(a.env.Stdout)
}

func (a *app) skillRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME...",
		Short: "Delete skills",
		Args:  someArgs(1, "NAME"),
		RunE: interruptible(func(ctx context.Context, names []string) error {
			svc, err := a.service(ctx)
			if err != nil {
				return err
			}
			return each(a, names, func(name string) (string, error) { return name, svc.RemoveSkill(ctx, name) }, nil)
		}),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, one := range listed(cmd.Context(), a, Service.Skills) {
				names = append(names, one.Name)
			}
			return without(names, args), cobra.ShellCompDirectiveNoFileComp
		},
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "Sessions that have one lose it with their next command.",
		examples: []string{"carboy box skill rm pdf-tools"}, exits: exitDocsPlain[:],
	})
}
