package jail

import (
	"context"
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InReaderForTest runs this test's own binary in the place of git. It works in dir, reads
// read and fills write.
func InReaderForTest(ctx context.Context, dir, read, write string, helpers bool, args ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	were := trusting
	trusting = nil
	defer func() { trusting = were }()
	out := &Bounded{Limit: 1 << 20}
	err = (&Git{Path: self, Dir: dir, Read: []string{read}}).Run(ctx, Work{Out: out, Fill: write, Most: 1 << 20, Helpers: helpers}, args...)
	return out.String(), err
}

// BehindLandlockForTest calls do on a thread with Landlock and no filter, which ends after
// it. It reads read and fills write.
func BehindLandlockForTest(read, write string, do func() error) (err error) {
	end := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		end <- errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), leave([]rule{{read, readTree}, {write, fillTree}}), do())
	}()
	return <-end
}

// LandlockCutsForTest reports whether this kernel's Landlock knows of cutting.
func LandlockCutsForTest() bool {
	abi, err := landlockABI()
	return err == nil && abi >= abiTruncate
}

// CheckVersionForTest refuses a git that is too old.
func CheckVersionForTest(ctx context.Context, git string) error { return checkVersion(ctx, git) }
