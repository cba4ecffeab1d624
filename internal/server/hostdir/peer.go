package hostdir

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const maxGroups = 65536 // the kernel's NGROUPS_MAX

// Peer returns whose process connected to c, as the kernel noted it then.
func Peer(c *net.UnixConn) (Identity, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Identity{}, fmt.Errorf("look at connection: %w", err)
	}
	var id Identity
	var perr error
	err = raw.Control(func(fd uintptr) { id, perr = peer(int(fd)) })
	if err == nil {
		err = perr
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read peer credentials: %w", err)
	}
	return id, nil
}

func peer(fd int) (Identity, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Identity{}, err
	}
	// The peer of a unix socket in another user namespace has the overflow uid.
	if cred.Uid == ^uint32(0) {
		return Identity{}, os.ErrPermission
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return Identity{}, err
	}
	return Identity{UID: cred.Uid, GID: cred.Gid, Groups: groups}, nil
}

// peerGroups reads SO_PEERGROUPS, which tells how much room it needs.
func peerGroups(fd int) ([]uint32, error) {
	n := 64
	for {
		groups := make([]uint32, n)
		need, err := getPeerGroups(fd, groups)
		switch {
		case err == nil:
			return groups[:need], nil
		case errors.Is(err, unix.ERANGE) && need > n && need <= maxGroups:
			n = need
		default:
			return nil, err
		}
	}
}
