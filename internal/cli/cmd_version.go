package cli

import (
	"context"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
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
	if svc, err := a.env.Connect(ctx, false, a.note); err == nil {
		v.Daemon, _ = svc.Version(ctx) // one that does not answer is as good as none here
	}
	if a.json {
		return writeJSON(a.env.Stdout, v)
	}
	var t table
	t.row("carboy", v.Version)
	if v.Daemon != nil {
		t.row("daemon", v.Daemon.Version)
	}
	return t.write(a.env.Stdout)
}
