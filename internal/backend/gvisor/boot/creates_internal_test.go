package boot

import (
	"cmp"
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
)

// TestOpenTriesAgain: an open is tried again only where it would make a file and has missed it, and
// only as long as there is no other reason for that.
func TestOpenTriesAgain(t *testing.T) {
	const plain, forever = linux.O_RDWR | linux.O_CREAT, 1 << 20
	for _, tt := range []struct {
		name     string
		flags    uint32
		by       *errors.Error // default: ENOENT
		misses   int           // after the first
		reason   *errors.Error // which comes up after two tries; nil: none
		want     *errors.Error
		attempts int
	}{
		{name: "made-at-the-second-try", flags: plain, attempts: 1},
		{name: "comes-and-goes", flags: plain, misses: 7, attempts: 8},
		{name: "comes-as-a-link", flags: plain, misses: 3, by: linuxerr.ELOOP, attempts: 4},
		{name: "directory-goes", flags: plain, misses: forever, reason: linuxerr.ENOENT, want: linuxerr.ENOENT, attempts: 2},
		{name: "interrupted", flags: plain, misses: forever, reason: linuxerr.ERESTARTNOINTR, want: linuxerr.ERESTARTNOINTR, attempts: 2},
		{name: "never-ends", flags: plain, misses: forever, want: linuxerr.ENOENT, attempts: createRounds},
		{name: "link-not-followed", flags: plain | linux.O_NOFOLLOW, by: linuxerr.ELOOP, want: linuxerr.ELOOP},
		{name: "not-allowed", flags: plain, by: linuxerr.EACCES, want: linuxerr.EACCES},
		{name: "exclusive", flags: plain | linux.O_EXCL, want: linuxerr.ENOENT},
		{name: "makes-none", flags: linux.O_RDWR, want: linuxerr.ENOENT},
	} {
		t.Run(tt.name, func(t *testing.T) {
			attempts, miss := 0, cmp.Or(tt.by, linuxerr.ENOENT)
			err := opening{flags: tt.flags}.rounds(miss, func() error {
				if attempts < 2 || tt.reason == nil {
					return nil
				}
				return tt.reason
			}, func() error {
				if attempts++; attempts <= tt.misses {
					return miss
				}
				return nil
			})
			if tt.want == nil && err != nil || tt.want != nil && !linuxerr.Equals(tt.want, err) || attempts != tt.attempts {
				t.Errorf("%v after %d more tries; want %v after %d", err, attempts, tt.want, tt.attempts)
			}
		})
	}
}
