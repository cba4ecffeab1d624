package cli

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// versionJSON is the answer of version --json.
type versionJSON struct {
	Version string       `json:"version"`
	API     int          `json:"api"`
	Go      string       `json:"go"`
	Daemon  *api.Version `json:"daemon"` // null where none runs
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "version [flags]",
		Short:             "Show the version, and the daemon's where one runs",
		Args:              exactArgs(),
		RunE:              interruptible(a.version),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{long: "It starts no daemon.", exits: exitDocsPlain[:]})
}

func (a *app) version(ctx context.Context, _ []string) error {
	v := versionJSON{Version: a.env.Version, API: api.Current, Go: runtime.Version()}
	if svc, err := a.env.Connect(ctx, false, a.Note); err == nil {
		v.Daemon, _ = svc.Version(ctx) // one that does not answer is as good as none here
	}
	if a.JSON {
		return a.WriteJSON(v)
	}
	var t console.Table
	t.Row("carboy", v.Version)
	if v.Daemon != nil {
		t.Row("daemon", v.Daemon.Version)
	}
	return t.Write(a.Stdout)
}
