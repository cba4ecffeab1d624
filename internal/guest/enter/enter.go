package enter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Name is the argv[0] by which the agent's program is asked to enter an instance.
const Name = "carboy-box"

// Order is what the host says on standard input.
type Order struct {
	Hostname string `json:"hostname"`
	// ShmBytes bounds /dev/shm.
	ShmBytes int64 `json:"shm_bytes"`
	// Counts bound what the host counts.
	Counts Counts `json:"counts"`
	// Regroup has the process begin a cgroup namespace anew: it was moved into
	// groups of version 1 since it has one.
	Regroup bool `json:"regroup"`
	// Linked: the network namespace was made ready by the host, whose it is.
	Linked bool `json:"linked"`
	// Groups is a directory, from the working directory, that is seen at Control inside; empty:
	// none is. It can be unmounted there.
	Groups  string `json:"groups,omitempty"`
	Control string `json:"control,omitempty"`
}

const maxOrder = 1 << 16 // bytes

// begun is what the process says first.
const begun = '\n'

// Begin tells the host that this process executes its program, all of which is mapped in.
func Begin(w io.Writer) error {
	_, err := w.Write([]byte{begun})
	return err
}

// AwaitBegun waits for what Begin says.
func AwaitBegun(r io.Reader) error {
	b := []byte{0}
	_, err := io.ReadFull(r, b)
	if err == nil && b[0] != begun {
		err = errors.New("it says something else")
	}
	if err != nil {
		return fmt.Errorf("the agent's program did not begin: %w", err)
	}
	return nil
}

// ReadOrder reads an Order. Fields that it does not know are errors.
func ReadOrder(r io.Reader) (Order, error) {
	var o Order
	dec := json.NewDecoder(io.LimitReader(r, maxOrder))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return Order{}, fmt.Errorf("read orders: %w", err)
	}
	return o, nil
}

// Enter carries out an order in the working directory. Afterwards the
// standard streams lead nowhere. It is called once, by the process's first
// thread, before anything else runs.
func Enter(o Order) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if o.Regroup && !weak.On(weak.CgroupsShared) {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return fmt.Errorf("make a cgroup namespace: %w", err)
		}
	}
	if err := ownRoot(); err != nil {
		return fmt.Errorf("take the root: %w", err)
	}
	if err := mountProc(); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := noNamespaces(); err != nil {
		return err
	}
	if err := o.Counts.bound(); err != nil {
		return err
	}
	if err := makeDevices(o.ShmBytes, o.Counts.Terminals); err != nil {
		return err
	}
	if err := seeded(); err != nil {
		return err
	}
	groups, err := take(o.Groups)
	if err != nil {
		return fmt.Errorf("take control groups along: %w", err)
	}
	if err := pivot(); err != nil {
		return fmt.Errorf("leave the host's root: %w", err)
	}
	if err := groups.place(o.Control); err != nil { // only now does no link in the path lead out
		return fmt.Errorf("show control groups: %w", err)
	}
	if !weak.On(weak.HostnameShared) {
		if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
			return fmt.Errorf("set the host name: %w", err)
		}
	}
	if !weak.On(weak.NetworkShared) && !o.Linked {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring up the loopback: %w", err)
		}
	}
	return giveUp()
}

// ownRoot makes the working directory a mount that this namespace owns: the
// one that it inherited is locked to its place.
func ownRoot() error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, ".", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, ".", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	return unix.Fchdir(tree)
}

// taken is a tree of mounts that has no place yet; 0: none.
type taken int

// take copies the mounts at and below a directory. What was inherited is locked to its
// place for good, and a copy is not.
func take(dir string) (taken, error) {
	if dir == "" {
		return 0, nil
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	return taken(fd), err
}

func (t taken) place(at string) error {
	if t == 0 {
		return nil
	}
	defer unix.Close(int(t))
	return unix.MoveMount(int(t), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

func mountProc() error {
	if weak.On(weak.HostPIDsShared) {
		return unix.Mount("/proc", "proc", "", unix.MS_BIND|unix.MS_REC, "")
	}
	return unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// noNamespaces lets nobody in this user namespace make another: the list of
// allowed calls refuses it, and this is the second line. Kernels without
// such limits have the first alone.
func noNamespaces() error {
	if weak.On(weak.UserShared) || weak.On(weak.HostPIDsShared) || weak.On(weak.NamespaceAllowed) {
		return nil // it would be the host's limit
	}
	err := os.WriteFile("proc/sys/user/max_user_namespaces", []byte("0"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("limit user namespaces: %w", err)
	}
	return nil
}

// pivot makes the working directory the root and forgets the old one.
func pivot() error {
	if weak.On(weak.OldRootKept) {
		if err := unix.Mount("/", "mnt", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	// The old root now lies over the new one, in the same place.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Chdir("/")
}

// seeded mounts what no instance is to see, where a test asks for that.
func seeded() error {
	var errs []error
	for w, paths := range map[weak.Weakness][2]string{
		weak.HostTmp: {"/tmp", "tmp"}, weak.HostSys: {"/sys", "sys"},
		weak.CgroupsShared: {"/sys/fs/cgroup", "mnt"}, weak.HostProc: {"/proc", "mnt"},
	} {
		if weak.On(w) {
			errs = append(errs, unix.Mount(paths[0], paths[1], "", unix.MS_BIND|unix.MS_REC, ""))
		}
	}
	return errors.Join(errs...)
}

// giveUp leaves what only the entering needed.
func giveUp() error {
	if !weak.On(weak.HostSetIDAllowed) {
		if err := seccomp.RefuseSetIDEverywhere(); err != nil {
			return fmt.Errorf("refuse set-id bits: %w", err)
		}
	}
	if err := nullStdio(); err != nil {
		return err
	}
	if weak.On(weak.DescriptorLeaked) {
		return nil
	}
	if err := unix.CloseRange(control.ProgramFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors to oneself: %w", err)
	}
	return nil
}

// nullStdio replaces the standard streams: they lead to the host.
func nullStdio() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("replace descriptor %d: %w", fd, err)
		}
	}
	return unix.Close(null)
}
