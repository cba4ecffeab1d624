package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/hybrid"
	"github.com/carboy-sandbox/carboy/internal/publish"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// socketsDir is where the sockets of sandboxes lie, below the runtime directory. Its name is
// short: a unix socket's path has 107 bytes at most for programs that know no other way.
const socketsDir = "vsock"

// openDoorways clears the place for the sockets of sandboxes. Nothing is open after.
func (d *daemon) openDoorways() (doorways, error) {
	sockets, err := hybrid.New(hybrid.Options{
		Dir: filepath.Join(d.cfg.Dirs.Run, socketsDir), Dial: d.dialHybrid, MaxConns: publishedConns(), Log: d.log,
	})
	if err != nil {
		return doorways{}, fmt.Errorf("open the place for the sockets of sandboxes: %w", err)
	}
	return doorways{d.publisher(), sockets, func(id string, err error) {
		d.log.Error("make the socket of a sandbox", "id", id, "error", err)
	}}, nil
}

// dialHybrid reaches what is behind a port of a sandbox's socket: the agent's action
// protocol behind its own, and else the port inside.
func (d *daemon) dialHybrid(ctx context.Context, id string, port int) (net.Conn, error) {
	anyone := sandbox.Caller{Admin: true}
	if port == action.Port {
		return agent.New(func(ctx context.Context) (net.Conn, error) {
			return d.manager.Dial(ctx, anyone, id, sandbox.GuestPort)
		}).Actions(ctx)
	}
	return d.manager.Dial(ctx, anyone, id, port)
}

// doorways are what is open of sandboxes for as long as they run: the ports that they
// publish, and the socket that each has.
type doorways struct {
	*publish.Ports
	sockets *hybrid.Sockets
	failed  func(id string, err error) // is told why a new sandbox has no socket
}

var _ sandbox.Ports = doorways{}

// claim has the ports of a sandbox that is to have a socket, too.
type claim struct {
	sandbox.PortClaim
	d     doorways
	owner string
}

// Claim implements sandbox.Ports.
func (d doorways) Claim(ctx context.Context, owner string, want []sandbox.Publish) (sandbox.PortClaim, error) {
	c, err := d.Ports.Claim(ctx, owner, want)
	if err != nil {
		return nil, err
	}
	return claim{c, d, owner}, nil
}

// Serve implements sandbox.PortClaim.
func (c claim) Serve(id string) {
	c.PortClaim.Serve(id)
	if err := c.d.sockets.Open(id, c.owner); err != nil {
		c.d.failed(id, err)
	}
}

// Open implements sandbox.Ports.
func (d doorways) Open(ctx context.Context, sb *sandbox.Sandbox) error {
	err := d.Ports.Open(ctx, sb)
	serr := d.sockets.Open(sb.ID, sb.Owner)
	if serr == nil {
		return err
	}
	d.failed(sb.ID, serr)
	return cmp.Or(err, error(sandbox.Errorf(sandbox.Unavailable, "its socket could not be made: it has none until it is started again")))
}

// Close implements sandbox.Ports.
func (d doorways) Close(id string) {
	d.sockets.Close(id)
	d.Ports.Close(id)
}

// CloseAll closes what is open of every sandbox.
func (d doorways) CloseAll() {
	d.Ports.CloseAll()
	d.sockets.CloseAll()
}
