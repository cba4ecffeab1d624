package boot

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
)

// holders are the processes that hold the host's files for a guest: the gofer
// opens them, and the sentry is handed them.
const holders = 2

// minFiles is what each of them needs for a guest at work.
const minFiles = 4096

// filesOfEach is how many descriptors each holder may have: together an instance's
// share of the host's, and never more than this process has.
func filesOfEach() (uint64, error) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	most, err := instance.HostCount("fs/file-max")
	if err != nil {
		return 0, err
	}
	return min(own.Max, instance.Share(most/holders, minFiles), 1<<30), nil
}
