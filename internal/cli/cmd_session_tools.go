package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

func (a *app) sessionToolsCommand() *cobra.Command {
	var query string
	cmd := &cobra.Command{
		Use:   "tools [flags]",
		Short: "Show the tools of a session, as a model is told of them",
		Args:  exactArgs(),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, _ []string) error {
			return a.sessionTools(ctx, svc, query)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&query, "query", "", "`VALUE` say where files for the user of that query go, too")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long:     "With --json each tool has a JSON Schema of its parameters.",
		exits:    exitDocsPlain[:],
		examples: []string{"carboy session tools", "carboy session tools --json"},
	})
}

func (a *app) sessionTools(ctx context.Context, svc *client.Client, query string) error {
	list, err := svc.SessionTools(ctx, query)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(list)
	}
	var t console.Table
	for _, tool := range list.Tools {
		t.Row(tool.Name, tool.Description)
	}
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "\n%s\n", list.Guidance)
	return err
}
