package instance

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// What is to be made as somebody else's is not made as root's where the kernel
// does not give the thread another id.
func TestAsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	const as = 100_000
	for name, may := range map[string]bool{"with-capabilities": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			ran, done := false, make(chan error)
			go func() {
				runtime.LockOSThread() // and never unlocked
				var err error
				if !may {
					err = rights.Capabilities{}.Set()
				}
				if err == nil {
					err = asOwner(as, func() error {
						ran = true
						now, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
						if now != as {
							return errors.New("it runs as another")
						}
						return nil
					})
				}
				done <- err
			}()
			if err := <-done; ran != may || (err == nil) != may {
				t.Errorf("it ran: %t, %v; want %t", ran, err, may)
			}
		})
	}
}
