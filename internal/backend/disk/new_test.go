package disk_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
)

// TestNewImageIsShared: a second mount of one that was mounted as new finds its
// device, and so does a second one that is said to be new.
func TestNewImageIsShared(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	var devices []string
	for _, o := range []disk.Options{{New: true}, {}, {New: true}} {
		target := t.TempDir()
		dev, err := disk.Mount(t.Context(), p, target, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := disk.Unmount(target); err != nil {
				t.Error(err)
			}
		})
		devices = append(devices, dev)
	}
	if devices[0] != devices[1] || devices[0] != devices[2] {
		t.Errorf("mounted from %q, want one device", devices)
	}
}

// BenchmarkMount is the first mount of an image, beside other images that are
// mounted.
func BenchmarkMount(b *testing.B) {
	e := setup(b)
	for i := range 50 {
		e.mount(b, e.image(b, fmt.Sprint("other", i), small))
	}
	for name, o := range map[string]disk.Options{"new": {New: true}, "any": {}} {
		b.Run(name, func(b *testing.B) {
			p := e.image(b, name, small)
			target := b.TempDir()
			var spent time.Duration
			for b.Loop() {
				before := cpu(b)
				if _, err := disk.Mount(b.Context(), p, target, o); err != nil {
					b.Fatal(err)
				}
				spent += cpu(b) - before
				if err := errors.Join(disk.Unmount(target), disk.Detached(b.Context(), p)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "mount-cpu-µs/op")
		})
	}
}

// cpu is the processor time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
