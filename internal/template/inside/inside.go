// Package inside runs the steps of builds in their sandboxes, by the guest
// agent's own protocol.
package inside

import (
	"context"
	"errors"
	"io"
	"net"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// guest is a sandbox of a build.
type guest struct{ *agent.Guest }

// New is what template.Options.Guest wants.
func New(dial func(context.Context) (net.Conn, error)) template.Guest {
	return guest{agent.New(dial)}
}

// Run implements template.Guest.
func (g guest) Run(ctx context.Context, cmd template.Command, out func([]byte)) (template.Exit, error) {
	c := &guestv1.Command{Argv: cmd.Argv, User: cmd.User, Cwd: cmd.Cwd, Env: cmd.Env}
	if cmd.Shell != "" {
		c = agent.Shell(cmd.Shell, cmd.User, cmd.Cwd, cmd.Env)
	}
	exit, err := g.Guest.Run(ctx, c, func(_ bool, b []byte) {
		if out != nil {
			out(b)
		}
	})
	if err != nil {
		return template.Exit{}, refused(err)
	}
	code := int(exit.GetCode())
	if code == 0 && exit.GetReason() != guestv1.Reason_REASON_EXITED {
		code = 1
	}
	return template.Exit{Code: code, Text: agent.Status(exit)}, nil
}

// Extract implements template.Guest.
func (g guest) Extract(ctx context.Context, dir, owner string, tar io.Reader) error {
	return refused(g.Guest.Extract(ctx, dir, owner, tar))
}

func refused(err error) error {
	if r, ok := errors.AsType[*agent.Refusal](err); ok {
		return &template.Refusal{Text: r.Text}
	}
	return err
}
