package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ParseSuperblock is the parser for its fuzz target: blocks, free ones,
// inodes, free ones.
func ParseSuperblock(b []byte) ([4]uint64, error) {
	s, err := parseSuperblock(b)
	return [4]uint64{s.blocks, s.freeBlocks, uint64(s.inodes), uint64(s.freeInodes)}, err
}

// Find returns the loop device that has the image, "" where none has.
func Find(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("find loop device: %w", err)
	}
	defer f.Close()
	id, err := inodeOf(f)
	if err != nil {
		return "", fmt.Errorf("find loop device: %w", err)
	}
	dev, err := findLoop(id, "")
	if err != nil || dev == nil {
		return "", err
	}
	defer dev.Close()
	return dev.Name(), nil
}

// Usage tells how full a file system is.
type Usage struct {
	Bytes      int64 // in all, the journal and tables left out where the kernel told
	FreeBytes  int64
	Inodes     int64
	FreeInodes int64
	HostBytes  int64 // what the image file takes on the host; 0 for MountUsage
	// NeedsRecovery says that the image is mounted, or was when the machine
	// crashed: the other figures are then of an earlier time.
	NeedsRecovery bool
}

// ImageUsage reads the usage of an image that is not mounted.
func ImageUsage(path string) (Usage, error) {
	f, err := openImage(path)
	if err != nil {
		return Usage{}, err
	}
	defer f.Close()
	sb, err := readSuperblock(f)
	if err != nil {
		return Usage{}, fmt.Errorf("read disk image %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Usage{}, fmt.Errorf("read disk image %s: %w", path, err)
	}
	return Usage{
		Bytes: int64(sb.blocks) * sb.blockSize, FreeBytes: int64(sb.freeBlocks) * sb.blockSize,
		Inodes: int64(sb.inodes), FreeInodes: int64(sb.freeInodes),
		HostBytes: st.Blocks * 512, NeedsRecovery: sb.recover,
	}, nil
}

// MountUsage reads the usage of a mounted image.
func MountUsage(target string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return Usage{}, fmt.Errorf("read usage of %s: %w", target, err)
	}
	return Usage{
		Bytes: int64(st.Blocks) * st.Bsize, FreeBytes: int64(st.Bavail) * st.Bsize,
		Inodes: int64(st.Files), FreeInodes: int64(st.Ffree),
	}, nil
}
