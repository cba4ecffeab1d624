package boot

import (
	"cmp"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// TestOpenTriesAgain: an open is tried again only where it would make a file and has missed it, and
// goes on only while the name is there by then.
func TestOpenTriesAgain(t *testing.T) {
	const plain, exclusive, forever = linux.O_RDWR | linux.O_CREAT, linux.O_RDWR | linux.O_CREAT | linux.O_EXCL, 1 << 20
	for _, tt := range []struct {
		name  string
		flags uint32
		gone  int           // how many opens without O_EXCL miss the file
		by    *errors.Error // default: ENOENT
		alone *errors.Error // what one with it comes to; nil: it makes the file
		want  *errors.Error
		calls int
	}{
		{name: "there-or-made", flags: plain, calls: 1},
		{name: "made-at-the-second-try", flags: plain, gone: forever, calls: 2},
		{name: "comes-and-goes", flags: plain, gone: 7, alone: linuxerr.EEXIST, calls: 15},
		{name: "comes-as-a-link", flags: plain, gone: 3, by: linuxerr.ELOOP, alone: linuxerr.EEXIST, calls: 7},
		{name: "link-not-followed", flags: plain | linux.O_NOFOLLOW, gone: forever, by: linuxerr.ELOOP, want: linuxerr.ELOOP, calls: 1},
		{name: "not-allowed", flags: plain, gone: forever, by: linuxerr.EACCES, want: linuxerr.EACCES, calls: 1},
		{name: "no-directory", flags: plain, gone: forever, alone: linuxerr.ENOENT, want: linuxerr.ENOENT, calls: 2},
		{name: "read-only", flags: plain, gone: forever, alone: linuxerr.EROFS, want: linuxerr.EROFS, calls: 2},
		{name: "link-to-no-directory", flags: plain, gone: forever, alone: linuxerr.EEXIST, want: linuxerr.ENOENT, calls: 1 + 2*createRounds},
		{name: "exclusive", flags: exclusive, alone: linuxerr.EEXIST, want: linuxerr.EEXIST, calls: 1},
		{name: "exclusive-no-directory", flags: exclusive, alone: linuxerr.ENOENT, want: linuxerr.ENOENT, calls: 1},
		{name: "makes-none", flags: linux.O_RDWR, gone: forever, want: linuxerr.ENOENT, calls: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls, gone := 0, tt.gone
			open := withFlagsAt(1)(func(_ *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				calls++
				switch {
				case args[1].Uint()&linux.O_EXCL != 0 && tt.alone != nil:
					return 0, nil, tt.alone
				case args[1].Uint()&linux.O_EXCL == 0 && gone > 0:
					gone--
					return 0, nil, cmp.Or(tt.by, linuxerr.ENOENT)
				}
				return 5, nil, nil
			})
			n, _, err := open(nil, 0, arch.SyscallArguments{1: {Value: uintptr(tt.flags)}})
			if tt.want == nil && (n != 5 || err != nil) || tt.want != nil && !linuxerr.Equals(tt.want, err) || calls != tt.calls {
				t.Errorf("%d, %v after %d calls; want %v after %d", n, err, calls, tt.want, tt.calls)
			}
		})
	}
}
