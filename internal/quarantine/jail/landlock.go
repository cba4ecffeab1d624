package jail

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/landlock"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Rights of Landlock, by what they are good for.
const (
	// handled are the rights of the first version: none of them is had where no rule
	// gives it. What later versions added, the filter of system calls refuses, or a file
	// must be open for it. Cutting files is handled as well, from abiTruncate on.
	handled = unix.LANDLOCK_ACCESS_FS_REFER - 1

	readTree = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	runTree  = readTree | unix.LANDLOCK_ACCESS_FS_EXECUTE
	fillTree = readTree | writeFile | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE
	useFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE | writeFile

	// writeFile is the right to change what is in a file. Without its second half, whoever
	// may only read a file by Landlock empties it as it is opened.
	writeFile = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE

	// onFiles are the rights that a rule for a single file may have.
	onFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | useFile
)

// Versions of Landlock's interface.
const (
	abiTruncate = 3 // from which cutting a file is a right
	abiScope    = 6 // from which signals can be kept in
)

// rule gives rights at and below a path, if it is there.
type rule struct {
	path   string
	rights uint64
}

// landlockABI returns the version of the kernel's interface.
func landlockABI() (int, error) {
	abi, err := landlock.ABI()
	if err != nil {
		return 0, sandbox.Errorf(sandbox.Unsupported, "this machine's kernel has no Landlock, behind which git reads what a sandbox made: %w", err).
			WithHint("start it with lsm=landlock and those that it has; carboy apply takes files without")
	}
	return abi, nil
}

// leave leaves the calling thread, and what it executes, the rights that rules give,
// and no other to any file. It signals nobody outside.
func leave(rules []rule) error {
	abi, err := landlockABI()
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	if abi >= abiTruncate {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	} // the filter of system calls refuses it, too
	if abi >= abiScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	set, err := landlock.New(attr)
	if err != nil {
		return fmt.Errorf("make a Landlock ruleset: %w", err)
	}
	defer set.Close()
	for _, r := range rules {
		r.rights &= attr.Handled_access_fs
		if err := r.add(set); err != nil {
			return fmt.Errorf("allow %s: %w", r.path, err)
		}
	}
	if err := set.Enter(); err != nil {
		return fmt.Errorf("enter a Landlock domain: %w", err)
	}
	return nil
}

func (r rule) add(set landlock.Ruleset) error {
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	rights := r.rights
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= onFiles
	}
	return set.Add(fd, rights)
}
