package instance_test

import (
	"math"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
)

func TestFilesOf(t *testing.T) {
	tests := []struct {
		name      string
		host      uint64
		processes int64
		want      uint64
	}{
		{"part", 16 << 20, 64, 16 << 10},
		{"what-programs-need", 1 << 20, 1024, instance.MinFiles},
		{"one-process", 1 << 20, 1, 1 << 16},
		{"no-bound-on-processes", 1 << 20, 0, 1 << 16},
		{"host-without-a-bound", math.MaxInt64, 1024, math.MaxInt64 / 16 / 1024},
		{"tiny-host", 1, 1, instance.MinFiles},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := instance.FilesOf(tt.host, tt.processes); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestShare(t *testing.T) {
	tests := []struct {
		name               string
		count, least, want uint64
	}{
		{"part", 4096, 64, 256},
		{"what-programs-need", 128, 32, 32},
		{"no-more-than-half", 40, 32, 20},
		{"never-none", 1, 32, 1},
		{"of-nothing", 0, 32, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := instance.Share(tt.count, tt.least); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestHostCount(t *testing.T) {
	if n, err := instance.HostCount("fs/file-max"); err != nil || n == 0 {
		t.Errorf("fs/file-max: got %d, %v", n, err)
	}
	for _, name := range []string{"fs/none", "fs/file-nr", "kernel/ostype"} {
		if n, err := instance.HostCount(name); err == nil {
			t.Errorf("%s: got %d, want an error", name, n)
		}
	}
}
