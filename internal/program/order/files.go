package order

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The programs that carboy carries, by the names of their directories in cmd.
const (
	Daemon = "carboy-daemon" // the daemon, and the roles that it executes itself in
	Gate   = "carboy-gate"   // the way out of one sandbox
	GVisor = "carboy-gvisor" // what boots instances of the default wall, and is their kernel
)

// Roles of the daemon's program that the command line executes, each with an order.
const (
	RoleServe     = "carboy-daemon"
	RoleDoctor    = "carboy-doctor"
	RoleUninstall = "carboy-uninstall"
)

// Handed are the programs that the daemon executes, in the order in which it is handed them.
func Handed() []string { return []string{Gate, GVisor} }

// Inherit opens a program that this process was handed down by a descriptor of an order.
func Inherit(handed map[string]int, name string) (*os.File, error) {
	fd, ok := handed[name]
	var st unix.Stat_t
	if !ok || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s was not handed down", name)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}
