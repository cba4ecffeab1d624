package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/landlock"
)

// Rights of Landlock, by what they are good for.
const (
	readTree = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeOld = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	// onFiles are the rights that a rule for a single file may have.
	onFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | writeOld | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// never is given nowhere, or to chosen devices alone.
	never = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// firstABI is all rights of the first version; the next added one each.
	firstABI = unix.LANDLOCK_ACCESS_FS_REFER - 1
)

// Versions of Landlock's interface.
const (
	// SocketsABI is the oldest one that a strict jail with Config.Shared needs.
	SocketsABI = abiRefer
	// abiRefer is the oldest one that is of use: before, no file could be
	// renamed from one directory into another.
	abiRefer    = 2
	abiTruncate = 3
	abiIoctl    = 5
	abiScope    = 6
)

// quietDevices do nothing that reaches further than the file itself, whatever
// they are asked. /dev/pts stands for the terminals in it.
var quietDevices = []string{
	"/dev/pts", "/dev/ptmx", "/dev/tty", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
}

// landlockABI returns the kernel's version, or 0 where it has none.
func landlockABI() (int, error) {
	abi, err := landlock.ABI()
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("ask for Landlock's version: %w", err)
	}
	return abi, nil
}

// enterDomain puts the calling thread and what it starts into a domain of their
// own, for good. There they have, whatever else a file's mode allows:
//
//   - no right to anything hidden;
//   - below /proc what exists, to read and write; below /sys to read;
//   - ioctl of no device but terminals and those that are quiet;
//   - everything else, except to make device nodes, below what / holds now.
//     Of / itself, and of directories on the way to something hidden, they
//     may read the names.
//
// Mounts can't be changed from inside a domain. Unless root, whose commands
// see to others', they signal no process outside, nor connect to its abstract
// sockets.
func enterDomain(abi int, hidden []string, root bool) error {
	handled := uint64(firstABI | unix.LANDLOCK_ACCESS_FS_REFER)
	if abi >= abiTruncate {
		handled |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= abiIoctl {
		handled |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	if abi >= abiScope && !root {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	set, err := landlock.New(attr)
	if err != nil {
		return fmt.Errorf("make a Landlock ruleset: %w", err)
	}
	defer set.Close()
	r := ruleset{to: set, handled: handled, hidden: hidden}
	if err := r.allow(); err != nil {
		return err
	}
	if err := set.Enter(); err != nil {
		return fmt.Errorf("enter a Landlock domain: %w", err)
	}
	return nil
}

// ruleset is a Landlock ruleset that is being filled.
type ruleset struct {
	to      landlock.Ruleset
	handled uint64
	hidden  []string
}

func (r *ruleset) allow() error {
	if err := r.children("/"); err != nil {
		return err
	}
	for _, dev := range quietDevices {
		if err := r.add(dev, unix.O_PATH, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV); err != nil {
			return err
		}
	}
	return nil
}

// children allows what a directory holds. A rule counts for all that lies
// below, so a directory on the way to something hidden can't have one.
func (r *ruleset) children(dir string) error {
	if err := r.add(dir, unix.O_PATH|unix.O_NOFOLLOW, unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list what to allow: %w", err)
	}
	for _, e := range entries {
		if err := r.entry(path.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (r *ruleset) entry(p string) error {
	if slices.Contains(r.hidden, p) {
		return nil
	}
	if slices.ContainsFunc(r.hidden, func(h string) bool { return strings.HasPrefix(h, p+"/") }) {
		return r.children(p)
	}
	rights := r.handled &^ never
	switch p {
	case "/proc":
		// A process's own files have no names yet. What is the kernel's there
		// is read-only by its mounts.
		rights = readTree | writeOld | unix.LANDLOCK_ACCESS_FS_EXECUTE
	case "/sys":
		rights = readTree
	}
	return r.add(p, unix.O_PATH|unix.O_NOFOLLOW, rights)
}

// add allows rights at and below a path. What has gone, or is a symbolic
// link, needs none.
func (r *ruleset) add(name string, flags int, rights uint64) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("allow %s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("allow %s: %w", name, err)
	}
	rights &= r.handled
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return nil
	case unix.S_IFDIR:
	default:
		rights &= onFiles
	}
	if rights == 0 {
		return nil
	}
	if err := r.to.Add(fd, rights); err != nil {
		return fmt.Errorf("allow %s: %w", name, err)
	}
	return nil
}
