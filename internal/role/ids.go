package role

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/subid"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// userID is the guest's user, in every instance.
const userID = 1000

// subIDs is how many ids of /etc/subuid a rootless instance wants: the guest's
// 0 to 65535, of which 1000 is the caller's own.
const subIDs = 1 << 16

// ids are how a caller who is not root makes instances: in a user namespace where its
// own id is the guest's user and its subordinate ids are the rest.
type ids struct {
	uids, gids           subid.Range
	newuidmap, newgidmap string
}

// findIDs looks for what a rootless instance needs, and says what is missing.
func findIDs() (*ids, error) {
	missing := func(format string, args ...any) error {
		return sandbox.Errorf(sandbox.Unsupported, format, args...).
			WithHint("%s", subid.Hint(os.Geteuid(), subIDs))
	}
	var r ids
	var err error
	if r.newuidmap, err = exec.LookPath("newuidmap"); err != nil {
		return nil, missing("without root, sandboxes need the program newuidmap, which is not installed")
	}
	if r.newgidmap, err = exec.LookPath("newgidmap"); err != nil {
		return nil, missing("without root, sandboxes need the program newgidmap, which is not installed")
	}
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	for _, f := range []struct {
		path string
		to   *subid.Range
	}{{"/etc/subuid", &r.uids}, {"/etc/subgid", &r.gids}} {
		*f.to, err = subid.Find(f.path, name, os.Geteuid(), subIDs)
		if err != nil {
			return nil, missing("without root, sandboxes need %d ids in %s: %v", subIDs, f.path, err)
		}
	}
	return &r, nil
}

// attributes start a role in a user namespace that nothing is mapped into
// yet, with all of its capabilities kept over the exec.
func (r *ids) attributes(a *syscall.SysProcAttr) {
	a.Cloneflags |= syscall.CLONE_NEWUSER
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		a.AmbientCaps = append(a.AmbientCaps, c)
	}
}

// mapIDs gives the namespace of pid its ids.
func (r *ids) mapIDs(pid int) error {
	run := func(tool string, s subid.Range, own int) error {
		args := []string{strconv.Itoa(pid)}
		for _, m := range [][3]int{{0, s.First, userID}, {userID, own, 1}, {userID + 1, s.First + userID + 1, subIDs - userID - 1}} {
			args = append(args, strconv.Itoa(m[0]), strconv.Itoa(m[1]), strconv.Itoa(m[2]))
		}
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := run(r.newuidmap, r.uids, os.Geteuid()); err != nil {
		return err
	}
	return run(r.newgidmap, r.gids, os.Getegid())
}

// BecomeReader makes a role root of its user namespace, or leaves root without groups: what it reads as
// somebody else is to be read with nobody's rights beside theirs.
func BecomeReader(rootless bool) error {
	switch {
	case rootless:
		return BecomeRoot()
	case os.Geteuid() == 0:
		return syscall.Setgroups(nil)
	}
	return nil
}

// BecomeRoot makes a role root of its user namespace, once ids are mapped.
func BecomeRoot() error {
	if err := rights.Become(0, 0); err != nil {
		return fmt.Errorf("become root of the user namespace: %w", err)
	}
	return nil
}
