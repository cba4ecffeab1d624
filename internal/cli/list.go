package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// listing is a command that lists all things of one kind.
type listing[T any] struct {
	noun    string // its words: carboy NOUN ls
	short   string
	long    string
	get     func(*client.Client, context.Context) ([]T, error)
	columns []string
	row     func(one *T, now time.Time) []string
}

func (l *listing[T]) command(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls [flags]",
		Short:             l.short,
		Args:              exactArgs(),
		RunE:              interruptible(func(ctx context.Context, _ []string) error { return l.run(ctx, a) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     l.long,
		examples: []string{"carboy " + l.noun + " ls", "carboy " + l.noun + " ls --json"},
		exits:    exitDocsPlain[:],
	})
}

func (l *listing[T]) run(ctx context.Context, a *app) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	list, err := l.get(svc, ctx)
	if err != nil {
		return err
	}
	return l.show(a, list)
}

// show writes a list as JSON or as a table.
func (l *listing[T]) show(a *app, list []T) error {
	if a.JSON {
		if list == nil {
			list = []T{}
		}
		return a.WriteJSON(list)
	}
	now := a.Now()
	var t console.Table
	t.Row(append([]string{}, l.columns...)...)
	for i := range list {
		t.Row(l.row(&list[i], now)...)
	}
	return t.Write(a.Stdout)
}

// removal is a command that removes things of one kind by what they are called.
type removal struct {
	noun     string // its words: carboy NOUN rm
	arg      string // in its usage: NAME
	example  string // of arg
	short    string
	long     string
	remove   func(svc *client.Client, ctx context.Context, name string) error
	complete completer
}

func (r removal) command(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm [flags] " + r.arg + "...",
		Short: r.short,
		Args:  someArgs(1, r.arg),
		RunE: interruptible(func(ctx context.Context, names []string) error {
			svc, err := a.service(ctx)
			if err != nil {
				return err
			}
			return each(a, names, func(name string) (string, error) { return name, r.remove(svc, ctx, name) }, nil)
		}),
		ValidArgsFunction: r.complete,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     r.long,
		examples: []string{"carboy " + r.noun + " rm " + r.example},
		exits:    exitDocsPlain[:],
	})
}

// completing completes what things of one kind are called, once each; nothing
// where no daemon runs or it takes too long.
func completing[T any](a *app, get func(*client.Client, context.Context) ([]T, error), name func(*T) string) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		list := listed(cmd.Context(), a, get)
		names := make([]string, len(list))
		for i := range list {
			names[i] = name(&list[i])
		}
		return without(names, args), cobra.ShellCompDirectiveNoFileComp
	}
}
