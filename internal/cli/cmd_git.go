package cli

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/gitremote/hostkey"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) gitCommand() *cobra.Command {
	cmd := a.nounCommand("git", "Look after remotes, which agents' git reaches by the git gate", "carboy git hostkey HOST")
	cmd.AddCommand(a.gitHostkeyCommand())
	return setHelp(cmd, docs{
		long: `A bottle's remotes are repositories elsewhere. An agent's git fetches from and pushes to them by
the git gate, which has their keys and looks at each push; what it asks about is among carboy
approve ls.`,
		examples: []string{"carboy git hostkey github.com"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) gitHostkeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hostkey [flags] HOST[:PORT]",
		Short: "Print the keys that a host shows by SSH, for known_host_key",
		Args:  exactArgs("HOST"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.gitHostkey(ctx, args[0])
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Each line is one key, as a remote's known_host_key takes it: the first will do. They are what
answers there now, and no proof of whose that is: compare the fingerprint with the one that the
host's owner publishes before you pin it. Without a PORT it is 22.`,
		examples: []string{"carboy git hostkey github.com", "carboy git hostkey git.example.com:2222"},
		exits:    exitDocsPlain[:],
	})
}

// shownKey is one key, for programs.
type shownKey struct {
	Host        string `json:"host"`
	Port        string `json:"port"`
	Key         string `json:"known_host_key"`
	Fingerprint string `json:"fingerprint"`
}

// hostTime bounds a conversation with a host.
const hostTime = time.Minute

func (a *app) gitHostkey(ctx context.Context, at string) error {
	host, port, err := hostPort(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, hostTime, fmt.Errorf("%s does not answer within %s", host, hostTime))
	defer cancel()
	lines, err := hostkey.Ask(ctx, (&net.Dialer{}).DialContext, host, port)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "git hostkey: %w", err)
	}
	keys := make([]shownKey, 0, len(lines))
	for _, line := range lines {
		keys = append(keys, shownKey{host, port, line, gitremote.Fingerprint(line)})
	}
	for _, k := range keys {
		a.Note(host + " shows " + k.Fingerprint)
	}
	a.Note("that is what answers there now, and no proof: compare it with what the owner of " + host + " publishes before you pin it")
	if a.JSON {
		return a.WriteJSON(keys)
	}
	for _, k := range keys {
		if err := a.PrintLine(k.Key); err != nil {
			return err
		}
	}
	return nil
}

// hostPort reads HOST or HOST:PORT.
func hostPort(at string) (host, port string, err error) {
	host, port = strings.Trim(at, "[]"), gitremote.SSHPort
	if h, p, err := net.SplitHostPort(at); err == nil {
		host, port = h, p
	}
	if _, problem := gitremote.Parse(fmt.Sprintf("ssh://git@%s/x", net.JoinHostPort(host, port))); problem != "" || host == "" || strings.ContainsAny(host, "/@ ") {
		return "", "", usage.Errorf("git hostkey: %.200q is no HOST or HOST:PORT", at).WithHint("carboy git hostkey github.com")
	}
	return host, port, nil
}
