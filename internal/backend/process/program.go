package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// program is the guest agent's on a mount of its own, which nothing else is on and
// which lies nowhere.
type program struct {
	*os.File
	mount *os.File
}

// ownMount opens an agent's program anew on a mount of its own in this thread's mount
// namespace. The one that it was opened on is the daemon's.
func ownMount(agent *os.File) (*program, error) {
	name, err := os.Readlink(fdName(agent))
	if err != nil {
		return nil, fmt.Errorf("find the agent's program: %w", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("make a mount of %s: %w", name, err)
	}
	p := &program{mount: os.NewFile(uintptr(fd), "mount of "+name)}
	if p.File, err = os.Open(fdName(p.mount)); err != nil {
		p.mount.Close()
		return nil, fmt.Errorf("open %s on its mount: %w", name, err)
	}
	if err := sameFile(agent, p.File); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func fdName(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

func sameFile(a, b *os.File) error {
	was, err := a.Stat()
	if err != nil {
		return err
	}
	is, err := b.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(was, is) {
		return fmt.Errorf("%s is another program by now", b.Name())
	}
	return nil
}

// seal has nobody execute the program any more. What was executed from it goes on,
// and its /proc/PID/exe leads to a file on that mount: see jail.KeepProgram.
func (p *program) seal() error {
	if weak.On(weak.ProgramShown) {
		return nil
	}
	err := unix.MountSetattr(int(p.mount.Fd()), "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC})
	if err != nil {
		return fmt.Errorf("have nobody execute the agent's program: %w", err)
	}
	return nil
}

// Close gives up both. The mount goes with the last process that was executed from it.
func (p *program) Close() {
	p.File.Close()
	p.mount.Close()
}
