package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/landlock"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Bounds of a walk through directories that commands fill: what is beyond has
// no sockets.
const (
	maxSocketDirs = 4096  // directories that get a rule
	maxSocketWalk = 65536 // entries that are looked at
)

// shared are the directories that need keeping sockets from.
func (j *Jail) shared() []string {
	if !j.cfg.Strict || weak.On(weak.SocketsShared) || weak.On(weak.LandlockOff) {
		return nil
	}
	return j.cfg.Shared
}

// checkShared fails where sockets can't be kept from what is shared: by this
// kernel, or because a process does not see it mounted where it should be.
func (j *Jail) checkShared(pid int) error {
	shared := j.shared()
	if len(shared) == 0 {
		return nil
	}
	if j.landlock == 0 {
		return errors.New("sockets can't be kept from what others see as well: this kernel has no Landlock")
	}
	mounts, err := mountsOf(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	for _, dir := range shared {
		if !slices.ContainsFunc(mounts, func(m mountPoint) bool { return m.path == dir }) {
			return fmt.Errorf("nothing is mounted at %s, which others see as well", dir)
		}
	}
	j.sockets.mounts = mounts
	return nil
}

// socketRules is a second domain for commands and for all that acts for them:
// sockets are made nowhere in and below what is shared. Who can't bind a socket
// there has none that another sandbox could dial, and descriptors go by sockets
// alone.
//
// A right counts for all that lies below, mounts too. So the directories that
// lead to what is shared can't have it: what they hold now gets it, and what is
// made in them later does not. Nor can a directory be moved to where it would
// have more rights, which the kernel sees to.
//
// All enter the very same rules, which are made once: what is made later, or
// moved, by one who has fewer of them, would be a way around them for others.
type socketRules struct {
	to     landlock.Ruleset
	shared []string
	mounts []mountPoint
	dirs   int // that got a rule
	seen   int // entries that were looked at
}

// socketDomain is the rules of a jail, once they are made.
type socketDomain struct {
	mounts []mountPoint // what commands see mounted; of the last init
	once   sync.Once
	rules  landlock.Ruleset
	made   bool
	err    error
}

func (d *socketDomain) close() {
	d.once.Do(func() { d.err = errors.New("the jail is closed") })
	if d.made {
		d.rules.Close()
	}
}

// keepSockets puts the calling thread, which is in the commands' mount
// namespace, into the domain. The first one makes the rules.
func (j *Jail) keepSockets() error {
	shared := j.shared()
	if len(shared) == 0 {
		return nil
	}
	d := &j.sockets
	d.once.Do(func() {
		d.rules, d.err = newSocketRules(shared, d.mounts, j.warn)
		d.made = d.err == nil
	})
	err := d.err
	if err == nil {
		err = d.rules.Enter()
	}
	if err != nil {
		return fmt.Errorf("keep sockets from what is shared: %w", err)
	}
	return nil
}

// Confine puts the calling thread, which is in MountNS and acts for commands, under
// the rules that hold for their sockets. It can't be undone.
func (j *Jail) Confine() error {
	if len(j.shared()) == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return j.keepSockets()
}

func newSocketRules(shared []string, mounts []mountPoint, warn func(string)) (landlock.Ruleset, error) {
	const handled = unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REFER
	set, err := landlock.New(unix.LandlockRulesetAttr{Handled_access_fs: handled})
	if err != nil {
		return -1, err
	}
	r := socketRules{to: set, shared: shared, mounts: mounts}
	_, err = r.allow("/", unix.LANDLOCK_ACCESS_FS_REFER) // or nothing could be renamed into another directory
	if err == nil {
		err = r.children("/")
	}
	if err != nil {
		set.Close()
		return -1, err
	}
	if r.dirs >= maxSocketDirs || r.seen >= maxSocketWalk {
		warn("sockets in some directories: too many lie beside what is shared")
	}
	return set, nil
}

// children allows sockets in what a directory holds.
func (r *socketRules) children(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for r.dirs < maxSocketDirs && r.seen < maxSocketWalk {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			r.seen++
			if r.dirs >= maxSocketDirs || !e.IsDir() {
				continue
			}
			if err := r.entry(path.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry allows sockets in a directory, but for what is shared. A tree that is
// read-only gets no rule: it may be the host's own, and lead to what is shared
// there. What is mounted in it is looked at by itself.
func (r *socketRules) entry(p string) error {
	within := func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	if slices.ContainsFunc(r.shared, within) {
		return nil
	}
	if slices.ContainsFunc(r.shared, func(s string) bool { return strings.HasPrefix(s, p+"/") }) {
		return r.children(p)
	}
	if done, err := r.allow(p, unix.LANDLOCK_ACCESS_FS_MAKE_SOCK); done || err != nil {
		return err
	}
	for _, m := range r.mounts {
		if m.readOnly || !strings.HasPrefix(m.path, p+"/") {
			continue
		}
		if err := r.entry(m.path); err != nil {
			return err
		}
	}
	return nil
}

// allow adds a rule for a directory, unless that has gone or nothing can be
// made there.
func (r *socketRules) allow(dir string, rights uint64) (done bool, err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("allow sockets in %s: %w", dir, err)
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return false, fmt.Errorf("allow sockets in %s: %w", dir, err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 && rights == unix.LANDLOCK_ACCESS_FS_MAKE_SOCK {
		return false, nil
	}
	r.dirs++
	if err := r.to.Add(fd, rights); err != nil {
		return false, fmt.Errorf("allow sockets in %s: %w", dir, err)
	}
	return true, nil
}
