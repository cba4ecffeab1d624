package content

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// kept are the capabilities over files that all operations together need.
const kept = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER

// becomeNobody leaves every thread of this process the capabilities of kept,
// and an id that owns nothing.
func becomeNobody() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("keep capabilities: %w", errno)
	}
	if err := rights.Become(nobody, nobody); err != nil {
		return err
	}
	return rights.Capabilities{Effective: kept, Permitted: kept}.SetAll()
}
