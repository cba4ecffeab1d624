package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/bench"
)

func (a *app) benchCommand() *cobra.Command {
	var o bench.Options
	var rounds int64
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure sandboxes on this machine, and what else it has",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			o.Rounds = int(rounds)
			return a.bench(ctx, o)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(countValue{&rounds}, "rounds", "n", fmt.Sprintf("`N` how often each case is measured (default %d)", bench.DefaultRounds))
	fs.BoolVar(&o.Quick, "quick", false, "few rounds and small amounts, for a look")
	fs.StringSliceVar(&o.Only, "only", nil, "`NAME[,NAME...]` measure only these groups, cases, or GROUP/CASE")
	a.addJSON(fs)
	_ = cmd.RegisterFlagCompletionFunc("only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return bench.Groups(), cobra.ShellCompDirectiveNoFileComp
	}) // the flag was made above
	a.completeFlags(cmd)
	cmd.AddCommand(a.benchGateCommand())
	return setHelp(cmd, docs{
		long: `Nothing is asserted: the table says what was seen, and what was not measured and
why. The run has a daemon and directories of its own, and leaves nothing. It takes about
half an hour; with --quick, a few minutes. Other work on the machine shows.`,
		examples: []string{"carboy bench --quick", "carboy bench --only start,exec --json >bench.json"},
		exits:    exitDocsPlain[:],
	})
}

// benchGateCommand measures the way through a gate. scripts/bench-gate.sh brings
// the proxies that are measured beside it.
func (a *app) benchGateCommand() *cobra.Command {
	var o bench.GateOptions
	var rounds int64
	cmd := &cobra.Command{
		Use:    "gate [flags]",
		Short:  "Measure what the way through a sandbox's gate costs",
		Hidden: true,
		Args:   exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			o.Carboy, o.Version, o.Rounds = exe, a.env.Version, int(rounds)
			report, err := bench.RunGate(ctx, o, a.Stderr)
			return a.showReport(report, err)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(countValue{&rounds}, "rounds", "n", "`N` how often each transfer is measured (default 10)")
	fs.BoolVar(&o.Quick, "quick", false, "few rounds and small amounts, for a look")
	fs.StringSliceVar(&o.Only, "only", nil, "`NAME[,NAME...]` measure only these groups, cases, or GROUP/CASE")
	fs.StringVar(&o.Squid, "squid", "", "`DIR` what squid is unpacked below")
	fs.StringVar(&o.Mitmproxy, "mitmproxy", "", "`DIR` what mitmproxy is unpacked below")
	a.addJSON(fs)
	return setHelp(cmd, docs{exits: exitDocsPlain[:]})
}

func (a *app) bench(ctx context.Context, o bench.Options) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	o.Carboy, o.Version, o.GVisor = exe, a.env.Version, a.env.GVisor
	o.Progress = func(format string, args ...any) { a.Note(fmt.Sprintf(format, args...)) }
	report, err := bench.Run(ctx, o)
	return a.showReport(report, err)
}

// showReport shows what was measured, also until an interrupt, and hands on err.
func (a *app) showReport(report *bench.Report, err error) error {
	if report == nil || len(report.Groups) == 0 {
		return err
	}
	write := func() error { return report.WriteTable(a.Stdout) }
	if a.JSON {
		write = func() error { return a.WriteJSON(report) }
	}
	if werr := write(); err == nil {
		err = werr
	}
	return err
}
