package cgroup

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Freezer stops all commands and has them go on, without their seeing it.
type Freezer struct{ file *os.File }

// Freezer opens the commands' freezer, for which there may be no descriptor
// later on. It is nil where the kernel has none, or the host keeps it. The
// caller closes it.
func (t *Hierarchy) Freezer() (*Freezer, error) {
	f, err := open(t.dir, "cgroup.freeze", unix.O_WRONLY)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the commands' freezer: %w", err)
	}
	return &Freezer{f}, nil
}

// Set freezes or thaws. It does not wait until all have come to a stop.
func (f *Freezer) Set(frozen bool) error {
	text := "0"
	if frozen {
		text = "1"
	}
	if _, err := unix.Pwrite(int(f.file.Fd()), []byte(text), 0); err != nil {
		return fmt.Errorf("freeze commands (%s): %w", text, err)
	}
	return nil
}

// Close lets go of the freezer, as it is.
func (f *Freezer) Close() error { return f.file.Close() }
