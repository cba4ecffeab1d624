package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

// What the tests outside this package look at from inside.
var (
	SplitWords = splitWords
	Proposable = proposable
	TypedBuild = typedBuild
)

// Root is the tree of commands.
func Root() *cobra.Command { return newApp(Env{}).rootCommand() }

// RefusedText is refusals.text.
func RefusedText(hosts []netlog.Refused, others int, none, next bool, in string) string {
	return refusals{hosts: hosts, others: others, none: none, next: next, in: in}.text()
}

// TellAsked is tellAsked without a terminal.
func TellAsked(ctx context.Context, c *console.Console, svc *client.Client, ref string) (stop func()) {
	return tellAsked(ctx, c, svc, ref, false)
}
