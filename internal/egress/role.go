package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Roles are those of this package. A gate that can't serve says why on standard
// output: its standard error is for what it ends by later.
func Roles() role.Table {
	return role.Table{RoleGate: func() error {
		if err := gateMain(os.Stdin, os.Stdout); err != nil {
			fmt.Println(err)
			return role.Code(1)
		}
		return nil
	}}
}

const (
	maxOrder    = 16 << 20 // bytes
	maxFiles    = 1 << 14  // descriptors of a gate
	gateMemory  = 96 << 20 // what its collector keeps to, if it can
	gateGarbage = 100      // percent
)

// gateMain reads an order, gives up all rights that it does not need, and
// serves until the link is gone.
func gateMain(in io.Reader, out io.Writer) error {
	var o order
	dec := json.NewDecoder(io.LimitReader(in, maxOrder))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("read order: more follows it")
	}
	// net/http prints the first bytes of answers that nobody asked for.
	log.SetOutput(io.Discard) //nolint:forbidigo // its logger is this one
	debug.SetMemoryLimit(gateMemory)
	debug.SetGCPercent(gateGarbage)
	// What only the file system has is read before it is out of reach.
	roots, err := readRoots()
	if err != nil {
		return fmt.Errorf("read whom this machine trusts: %w", err)
	}
	_ = time.Local.String()
	host, err := thisMachine()
	if err != nil {
		return err
	}
	l, err := inherited(fdControl, "control")
	if err != nil {
		return err
	}
	offers, err := inherited(fdOffers, "offers")
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	tap, err := ownTAP(o)
	if err != nil {
		return err
	}
	if err := confine(o); err != nil {
		return fmt.Errorf("give up rights: %w", err)
	}
	s, err := serve(o, poolOf(roots), host, tap, os.NewFile(fdLogA, "log"), os.NewFile(fdLogB, "log"))
	if err != nil {
		return err
	}
	if err := role.Ready(out); err != nil {
		return err
	}
	for _, fd := range []int{0, 1} { // not closed: the next socket would get the number
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return s.run(context.Background(), l, offers)
}

// inherited is a socket that this gate was given to listen on: what the daemon
// says comes by one, and who offers a service by the other.
func inherited(fd uintptr, name string) (net.Listener, error) {
	f := os.NewFile(fd, name)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	return l, nil
}

// confine leaves this process its open descriptors, its memory and the
// network: no file, no capability, no identity that owns anything, and a list
// of system calls.
func confine(o order) error {
	var errs []error
	for what, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_FSIZE: 2 * logBytes} {
		if o.Rootless { // which can't raise one
			limit = min(limit, hardLimit(what))
		}
		errs = append(errs, unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}))
	}
	uid := int(o.UID)
	switch {
	case weak.On(weak.NetGateAsRoot):
	case o.Rootless:
		errs = append(errs, confineRootless(o.Root))
	case uid != 0:
		errs = append(errs, syscall.Chroot(o.Root), syscall.Chdir("/"),
			rights.Become(uid, uid))
	}
	// Neither traced nor read by another process of the same id.
	errs = append(errs, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	if !weak.On(weak.NetGateUnfiltered) {
		errs = append(errs, seccomp.ConfineGate())
	}
	return errors.Join(errs...)
}
