// Command bench measures sandboxes on this machine, and what else it has: see
// docs/performance.md. It is no part of what people install.
//
// usage: bench [gate] [flags]; bench --trace [flags]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/bench"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Exit codes, as carboy's own.
const (
	exitFailed      = 125
	exitInterrupted = 130
)

func main() {
	role.Become(bench.Roles())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case ctx.Err() != nil:
		os.Exit(exitInterrupted) //nolint:gocritic // the process ends
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Hint != "" {
		fmt.Fprintln(os.Stderr, "hint:", e.Hint)
	}
	os.Exit(exitFailed)
}

// options are the flags, those of gates with them.
type options struct {
	carboy           string
	rounds           int
	quick, json      bool
	trace            bool
	only             names
	squid, mitmproxy string
}

// names are values with commas between, of one flag or several.
type names []string

// String implements flag.Value.
func (n *names) String() string { return strings.Join(*n, ",") }

// Set implements flag.Value.
func (n *names) Set(s string) error {
	*n = append(*n, strings.Split(s, ",")...)
	return nil
}

func run(ctx context.Context, args []string) error {
	gate := len(args) > 0 && args[0] == "gate"
	if gate {
		args = args[1:]
	}
	o := options{carboy: os.Getenv("CARBOY_BIN")}
	if o.carboy == "" {
		o.carboy = filepath.Join("bin", "carboy")
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.IntVar(&o.rounds, "n", 0, "how often each case is measured; 0: the usual number")
	fs.IntVar(&o.rounds, "rounds", 0, "the same")
	fs.BoolVar(&o.quick, "quick", false, "few rounds and small amounts, for a look")
	fs.BoolVar(&o.json, "json", false, "write the report as JSON, with every sample")
	fs.Var(&o.only, "only", "`NAME[,NAME...]` measure only these groups, cases, or GROUP/CASE")
	if !gate {
		fs.BoolVar(&o.trace, "trace", false, "tell where the time of a create and of a command goes, by process; needs root")
	}
	if gate {
		fs.StringVar(&o.squid, "squid", "", "`DIR` what squid is unpacked below")
		fs.StringVar(&o.mitmproxy, "mitmproxy", "", "`DIR` what mitmproxy is unpacked below")
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %s", fs.Arg(0))
	}
	version, err := o.find(ctx)
	if err != nil {
		return err
	}
	if o.trace {
		report, err := bench.RunTrace(ctx, o.forRun(version))
		return errors.Join(err, o.showTrace(report))
	}
	report, err := o.measure(ctx, gate, version)
	return errors.Join(err, o.show(report))
}

// find finds the program to measure, and asks it for its version.
func (o *options) find(ctx context.Context) (version string, err error) {
	if o.carboy, err = filepath.Abs(o.carboy); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, o.carboy, "version").Output()
	if err != nil {
		return "", fmt.Errorf("there is no carboy to measure: %w: make build, or set CARBOY_BIN", err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(strings.TrimPrefix(first, "carboy")), nil
}

func (o *options) measure(ctx context.Context, gate bool, version string) (*bench.Report, error) {
	if gate {
		return bench.RunGate(ctx, bench.GateOptions{
			Carboy: o.carboy, Version: version, Rounds: o.rounds, Quick: o.quick, Only: o.only,
			Squid: o.squid, Mitmproxy: o.mitmproxy,
		}, os.Stderr)
	}
	return bench.Run(ctx, o.forRun(version))
}

func (o *options) forRun(version string) bench.Options {
	return bench.Options{
		Carboy: o.carboy, Version: version, Rounds: o.rounds, Quick: o.quick, Only: o.only,
		GVisor:   filepath.Join(filepath.Dir(o.carboy), "programs", "carboy-gvisor"),
		Progress: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) },
	}
}

// show writes what was measured, also until an interrupt.
func (o *options) show(report *bench.Report) error {
	if report == nil || len(report.Groups) == 0 {
		return nil
	}
	if !o.json {
		return report.WriteTable(os.Stdout)
	}
	return writeJSON(os.Stdout, report)
}

// showTrace is show for what was traced.
func (o *options) showTrace(report *bench.TraceReport) error {
	if report == nil || len(report.Cases) == 0 {
		return nil
	}
	if !o.json {
		return report.WriteTable(os.Stdout)
	}
	return writeJSON(os.Stdout, report)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
