package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Parts is into how many parts what a host counts for all its processes, or
// all of a user's, is divided: an instance gets one.
const Parts = 16

// MinFiles is what any program may expect to open.
const MinFiles = 1024

// HostCount reads one number below /proc/sys.
func HostCount(name string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return 0, fmt.Errorf("read what the host can count: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read what the host can count: %s: %w", name, err)
	}
	return n, nil
}

// Share is an instance's part of a count, not below least, which is what programs
// need. No instance gets more than half, whatever they need.
func Share(count, least uint64) uint64 {
	return max(min(max(count/Parts, least), count/2), 1)
}

// FilesOf is how many descriptors each of so many processes may have, which
// together hold an instance's share of the host's open files, or MinFiles where that
// is more.
func FilesOf(hostFiles uint64, processes int64) uint64 {
	return max(hostFiles/Parts/uint64(max(processes, 1)), MinFiles)
}
