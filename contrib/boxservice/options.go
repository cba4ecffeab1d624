package boxservice

import (
	"context"
	"crypto/x509"
	"log/slog"
)

// Options say how a runtime is reached, and what it is told. The zero value is
// a child of `carboy langbot serve --stdio`.
type Options struct {
	// Disabled has the connector connect to nothing.
	Disabled bool
	// Endpoint is "ws://HOST[:PORT]" or "wss://HOST[:PORT]" of a runtime that
	// somebody else runs. Without one, Platform PlatformDocker is
	// "ws://langbot_box:5410" and Standalone "ws://127.0.0.1:5410"; with none of
	// them a child process is the runtime.
	Endpoint   string
	Standalone bool
	Platform   string

	// Command is the child's, {"carboy", "langbot", "serve", "--stdio"} by default.
	// It speaks on its standard input and output, and ends with its input.
	Command []string
	// Env is the child's environment, "NAME=value"; nil: this process's own.
	Env []string
	// Listen is the address at which the child has its managed processes'
	// input and output, "127.0.0.1:5410" by default. Another one is added to
	// Command as --listen.
	Listen string

	// RootCAs vouch for a runtime at wss://, which then needs a certificate of one
	// of them for its HOST; nil: those that this machine trusts. It is for
	// such an Endpoint alone.
	RootCAs *x509.CertPool

	// Token is the runtime's control token, of at least 32 characters. A child
	// without one gets a random one.
	Token string
	// Instance is the platform's own ID: a runtime serves one at a time. Once an
	// instance made a call for a workspace (see Client.For), all of its calls
	// have to be for one, but those about the runtime itself.
	Instance string
	// Init is told to the runtime after each connection; nil: nothing is.
	Init map[string]any

	// OnConnect is called after each connection, in a goroutine of its own. ctx
	// ends with the connection, and the next one waits until it has returned.
	OnConnect func(ctx context.Context, c *Client)
	// OnDisconnect is called after each connection that ended, or failed to come
	// about, and once more where the connector is closed.
	OnDisconnect func(err error)

	Log *slog.Logger // nil: nothing is logged
}
