package hostdir

import (
	"fmt"
	"os"
	"runtime"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// as runs f with id's rights over files, on a thread of its own that ends
// with it. Where this process is not root, f runs with its rights: those of
// the only user whom it serves, or fewer than anybody else asked for.
func as(id *Identity, f func() error) error {
	if id == nil || os.Geteuid() != 0 || id.UID == 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		// Never unlocked: a thread with another identity is not used again.
		runtime.LockOSThread()
		err := rights.Identity{UID: id.UID, GID: id.GID, Groups: id.Groups}.OverFiles()
		if err != nil {
			err = fmt.Errorf("take the caller's identity: %w", err)
		} else {
			err = f()
		}
		done <- err
	}()
	return <-done
}
