package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) netCommand() *cobra.Command {
	cmd := a.nounCommand("net", "Look at what sandboxes tried to reach", "carboy net log NAME")
	cmd.AddCommand(a.netLogCommand())
	return setHelp(cmd, docs{
		long: `What a sandbox may reach is said by --network, --allow and --policy of run and
create, and later by carboy policy set.`,
		examples: []string{"carboy net log web --denied", "carboy net log -f web"},
		exits:    exitDocsPlain[:],
	})
}

// nounCommand is a command that only has others below it.
func (a *app) nounCommand(name, short, example string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " COMMAND",
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("%s: COMMAND is missing", name).WithHint("%s", example)
			}
			return unknownCommand(cmd, args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
}

func (a *app) netLogCommand() *cobra.Command {
	var o client.NetLogOptions
	cmd := &cobra.Command{
		Use:   "log [flags] NAME",
		Short: "Show what a sandbox tried to reach, and what became of it",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.netLog(ctx, svc, args[0], o)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "go on as more happens, until Ctrl-C or the end")
	cmd.Flags().BoolVar(&o.Denied, "denied", false, "only what was refused")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `A line for each DNS question, connection and request, oldest first: what it was,
and by which rule it was allowed, or why it was refused. What is kept is bounded:
the oldest goes first. No query, header, body or secret is ever in it.
--json writes an array of records; with -f, one record a line.`,
		examples: []string{"carboy net log web", "carboy net log web --denied --json", "carboy net log -f web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) netLog(ctx context.Context, svc *client.Client, name string, o client.NetLogOptions) error {
	all := []api.NetRecord{}
	for rec, err := range svc.NetLog(ctx, name, o) {
		if err != nil {
			return err
		}
		switch {
		case a.JSON && o.Follow:
			err = console.WriteJSONLine(a.Stdout, rec)
		case a.JSON:
			all = append(all, rec)
		default:
			err = a.PrintLine(netLine(&rec))
		}
		if err != nil {
			return err
		}
	}
	if a.JSON && !o.Follow {
		return a.WriteJSON(all)
	}
	return nil
}

// netLine is one record: when, its verdict, what it was, and why.
func netLine(rec *api.NetRecord) string {
	const whatWidth = 48
	what, why := netWhat(rec), netWhy(rec)
	line := fmt.Sprintf("%s  %-5s  %s", rec.Time.Local().Format(time.DateTime), rec.Verdict, what)
	if why == "" {
		return line
	}
	return line + strings.Repeat(" ", max(0, whatWidth-utf8.RuneCountInString(console.Escape(what)))) + "  " + why
}

// netWhat is what a sandbox tried, in its own words.
func netWhat(rec *api.NetRecord) string {
	where := rec.Host
	port := ""
	if i := strings.LastIndexByte(rec.Address, ':'); i >= 0 {
		port = rec.Address[i+1:]
	}
	switch {
	case where == "":
		where = rec.Address
	case port != "" && !strings.HasSuffix(where, ":"+port):
		where = strings.TrimSuffix(where, ".") + ":" + port
	}
	switch rec.Protocol {
	case netlog.Service: // whatever way it took to the gate
		return strings.Join(nonEmpty(rec.Protocol, rec.Method, rec.Host+rec.Path), " ")
	case "dns":
		return strings.Join(nonEmpty("dns", rec.Method, rec.Host), " ")
	case "http", "https":
		if def := map[string]string{"http": ":80", "https": ":443"}[rec.Protocol]; rec.Host != "" {
			where = strings.TrimSuffix(where, def)
		}
		return strings.Join(nonEmpty(rec.Method, rec.Protocol+"://"+where+rec.Path), " ")
	}
	return strings.Join(nonEmpty(rec.Protocol, where), " ")
}

// netWhy is the rule or the reason, and how it went.
func netWhy(rec *api.NetRecord) string {
	var parts []string
	if rec.Code != "" {
		parts = append(parts, strings.Join(nonEmpty(rec.Code, rec.Reason), ": "))
	} else if rec.Verdict == "deny" {
		parts = nonEmpty(rec.Reason)
	}
	if rec.Rule != "" {
		parts = append(parts, "rule "+rec.Rule)
	}
	if rec.Status != 0 {
		parts = append(parts, strconv.Itoa(rec.Status))
	}
	parts = append(parts, nonEmpty(rec.Result)...)
	if rec.Sent > 0 {
		parts = append(parts, term.FormatSize(rec.Sent)+" sent")
	}
	if rec.Received > 0 {
		parts = append(parts, term.FormatSize(rec.Received)+" received")
	}
	if len(rec.Secrets) > 0 {
		parts = append(parts, "with "+strings.Join(rec.Secrets, " "))
	}
	if rec.Count > 1 {
		parts = append(parts, strconv.Itoa(rec.Count)+" times")
	}
	return strings.Join(parts, ", ")
}

func nonEmpty(words ...string) []string {
	kept := words[:0]
	for _, w := range words {
		if w != "" {
			kept = append(kept, w)
		}
	}
	return kept
}
