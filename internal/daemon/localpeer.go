package daemon

import (
	"context"
	"net"
	"net/http"
	"os"

	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

type connKey struct{}

// withConn has requests know their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ownUsers refuses requests over loopback that are of another user of this
// machine than root and the daemon's: whoever may connect is served as the
// daemon's own user, and a port is open to all.
func ownUsers(r *http.Request) error {
	no := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Denied, format, args...).WithHint("set a control token, which other users need")
	}
	c, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return no("who connects is not known")
	}
	uid, ok := loopback.PeerUser(c)
	switch {
	case !ok:
		return no("which user connects is not known")
	case uid != 0 && uid != uint32(os.Geteuid()):
		return no("user %d is another one than the daemon's", uid)
	}
	return nil
}
