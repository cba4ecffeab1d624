package order

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	RoleLogin     = "carboy-login"
)

// Handed are the programs that the daemon executes, in the order in which it is handed them.
func Handed() []string { return []string{Gate, GVisor} }

// Program is one that a process is handed down, open to be executed.
type Program struct {
	FD     int    `json:"fd"`
	Path   string `json:"path,omitempty"` // what it was opened by; "": it is in memory
	Digest string `json:"digest"`         // by SHA-256 in hex
	Size   int64  `json:"size"`
}

// Inherit opens a program that this process was handed down by its descriptor.
func (o Order) Inherit(name string) (*os.File, error) {
	p, ok := o.Programs[name]
	var st unix.Stat_t
	if !ok || unix.Fstat(p.FD, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s was not handed down", name)
	}
	unix.CloseOnExec(p.FD)
	return os.NewFile(uintptr(p.FD), name), nil
}

// ErrUnfit is of a file that is not the program which its name says.
var ErrUnfit = errors.New("not that program")

// Check reads all of a program through the descriptor by which it is executed afterwards.
// Of one that is another than it was, the name is removed: the next daemon's start
// unpacks it anew.
func (p Program) Check(f *os.File) error {
	err := Check(f, p.Digest, p.Size)
	if errors.Is(err, ErrUnfit) && p.Path != "" {
		err = errors.Join(err, os.Remove(p.Path))
	}
	return err
}

// Check reads all of f, which must be that.
func Check(f *os.File, digest string, size int64) error {
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, io.NewSectionReader(f, 0, size+1), make([]byte, 1<<18))
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if n != size || hex.EncodeToString(sum.Sum(nil)) != digest {
		return fmt.Errorf("%s: %w", f.Name(), ErrUnfit)
	}
	return nil
}
