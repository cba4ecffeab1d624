package disk

import (
	"errors"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Size is what the user of an image can fill, and never more: contents and
// files have a little less, by the directories that they are in. The file
// system's own tables come on top, so an image file's length is larger than
// Bytes. What a geometry can't be made for exactly has less of it: up to
// slackBytes, and up to 16 inodes for each 128 MiB. Only above 512 GiB there
// are at least 16 inodes for each 128 MiB, however few were asked for.
type Size struct {
	Bytes  int64 // contents, directories and extent trees; MinBytes to MaxBytes
	Inodes int64 // files, directories and links together; 1 to MaxInodes(Bytes)
}

// slackBytes is how much less than its Bytes an image may have: a last group of
// blocks that is too small for its own tables is left out.
const slackBytes = 1 << 20

// The bounds of Size.Bytes.
const (
	MinBytes = sandbox.MinDisk
	MaxBytes = sandbox.MaxDisk
)

// The geometry of our file systems.
const (
	blockSize      = 4096
	inodeSize      = 256
	blocksPerGroup = 8 * blockSize // one bitmap block's worth
	groupBytes     = blocksPerGroup * blockSize
	reservedInodes = 12 // those the file system needs, and lost+found
)

// MaxInodes returns the most inodes that an image of so many bytes can have:
// one for each block, as a file without a block would be of little use.
func MaxInodes(bytes int64) int64 { return bytes / blockSize }

// Validate says what is wrong with s, as an Invalid error that tells what
// would work.
func (s Size) Validate() error {
	if s.Bytes < MinBytes || s.Bytes > MaxBytes {
		return sandbox.Errorf(sandbox.Invalid, "disk of %d bytes is not between %d and %d", s.Bytes, int64(MinBytes), int64(MaxBytes))
	}
	if limit := MaxInodes(s.Bytes); s.Inodes < 1 || s.Inodes > limit {
		return sandbox.Errorf(sandbox.Invalid, "%d inodes for a disk of %d bytes are not between 1 and %d", s.Inodes, s.Bytes, limit)
	}
	return nil
}

// journal returns the journal's length in MiB: small, because every block of
// it is written sooner or later, yet long enough not to stall large disks.
func (s Size) journal() int64 {
	switch {
	case s.Bytes < 256<<20:
		return 4 // the least that the file system takes
	case s.Bytes < 4<<30:
		return 16
	}
	return 32
}

// length estimates how long the image file must be so that s fits.
func (s Size) length() int64 {
	total := s.Bytes
	for {
		next := roundUp(s.Bytes+s.overhead(total), 1<<20)
		if next == total {
			return total
		}
		total = next
	}
}

// overhead returns what the tables of a file system of the given length take.
func (s Size) overhead(length int64) int64 {
	groups := (length + groupBytes - 1) / groupBytes
	perGroup := roundUp((s.Inodes+reservedInodes+groups-1)/groups, blockSize/inodeSize)
	tables := groups * (perGroup*inodeSize + 2*blockSize) // inodes, and two bitmaps
	descriptors := roundUp(groups*64, blockSize) + blockSize
	copies := min(groups, 2) // of the superblock: groups 0 and 1, and powers of 3, 5 and 7
	for _, base := range []int64{3, 5, 7} {
		for n := base; n < groups; n *= base {
			copies++
		}
	}
	// The kernel holds back 2 % of what is free, at most 4,096 blocks.
	held := min(s.Bytes/50, 4096*blockSize)
	return tables + copies*descriptors + s.journal()<<20 + held + 4*blockSize
}

// args returns mke2fs's arguments without the file, for so many inodes in all.
// All that its configuration file could change is said.
func (s Size) args(inodes int64) []string {
	return []string{
		"-F", "-q", "-b", strconv.Itoa(blockSize), "-I", strconv.Itoa(inodeSize),
		"-N", strconv.FormatInt(inodes, 10),
		"-m", "0", "-e", "remount-ro", "-J", "size=" + strconv.FormatInt(s.journal(), 10),
		"-O", "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum",
		"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
	}
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// leastRoom is what is too little for a database's log, in bytes.
const leastRoom = 128 << 10

// Full reports whether the file system of a directory has next to no room, or
// can have no more files. Who has used up a quota of it is not seen.
func Full(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false
	}
	noFiles := st.Files > 0 && st.Ffree == 0 // some have as many as there is room for
	// Not all that is free can be had: ext4 keeps some even from root.
	return noFiles || Room(dir) < leastRoom
}

// Room is how many bytes can be written to the file system of a directory; of
// one that can't be looked at, as many as there are.
func Room(dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 1 << 63
	}
	return st.Bavail * uint64(st.Bsize)
}

// ReadOnly reports whether nothing can be written to the file system of a
// directory. One that the kernel found damaged says so only to who tries.
func ReadOnly(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_RDONLY != 0 {
		return true
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EROFS)
}
