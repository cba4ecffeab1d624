package guest

import (
	"fmt"
	"net"
	"os"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// dialSocket connects to a unix socket as a command of the sandbox's default user would.
func (a *agent) dialSocket(path string) (net.Conn, error) {
	u, err := a.allowed(a.users)(a.settings.defaults().User)
	if err != nil {
		return nil, err
	}
	fd, err := a.jail.Connect(jail.User{UID: u.UID, GID: u.GID, Groups: u.Groups}, path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return net.FileConn(f)
}
