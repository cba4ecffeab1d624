package boot

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
)

// Sentry and gofer together keep to an instance's share, and each to what this
// process may hand down.
func TestFilesOfEach(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	most, err := instance.HostCount("fs/file-max")
	if err != nil {
		t.Fatal(err)
	}
	got, err := filesOfEach()
	if err != nil || got == 0 || got > own.Max || got > max(most/instance.Parts/holders, minFiles) {
		t.Errorf("got %d, %v: of %d here, and %d of the host's", got, err, own.Max, most)
	}
	conf, err := runscConfig(&gvisor.Order{})
	if err != nil || conf.FDLimit != int(got) {
		t.Errorf("gVisor is told %v, %v; want %d", conf, err, got)
	}
}
