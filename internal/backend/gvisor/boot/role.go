package boot

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/filters"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/owner"
	_ "github.com/carboy-sandbox/carboy/internal/backend/gvisor/umounter" // does its work when it is initialized
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/role"
)

// The names by which gVisor executes this program besides.
const (
	roleSelf  = selfExe        // the helper by which the sentry gives up its /proc
	roleRunsc = "carboy-runsc" // the plain command line, for comparison
	roleExec  = "runsc-exec"   // what that one executes itself as for a detached exec
)

// Roles are those of this package. Launchers make links by maker; nil: none.
func Roles(maker instance.LinkMaker) role.Table {
	t := role.Table{
		gvisor.RoleLauncher: func() error { return launcherMain(os.Stdin, os.Stdout, maker) },
		gvisor.RoleSuspend:  func() error { return suspendMain(os.Stdin) },
	}
	for _, name := range []string{gvisor.RoleSentry, gvisor.RolePrewarmer} {
		t[name] = runSentry
	}
	t[gvisor.RoleGofer] = runGofer
	for _, name := range []string{roleSelf, roleRunsc, roleExec} {
		t[name] = runRunsc
	}
	return t
}

// runGofer serves files, and makes them as those who make them inside.
func runGofer() error {
	if err := owner.Keep(); err != nil {
		return err
	}
	return runRunsc()
}

// runRunsc hands over to gVisor's own command line.
func runRunsc() error {
	filters.Register()
	const internal = "internal use only"
	commands := map[util.SubCommand]string{
		new(sentrycmd.Boot): internal, new(cmd.Gofer): internal, new(sentrycmd.Umount): internal,
	}
	if os.Args[0] == roleRunsc || os.Args[0] == roleExec {
		for _, c := range []util.SubCommand{
			new(cmd.Run), new(cmd.Create), new(cmd.Start), new(cmd.Exec), new(cmd.Kill),
			new(cmd.Delete), new(cmd.State), new(cmd.Wait), new(cmd.List),
		} {
			commands[c] = ""
		}
	}
	cli.Run(nil, commands, nil)
	return nil
}

// runSentry boots the sentry with the memory and the processors of the instance
// rather than the host's: gVisor reads them from cgroups that it made itself,
// and ours are our own. The spec carries them.
func runSentry() error {
	refusePositions()
	keepMounts(os.Args)
	keepAttributes()
	createAmidOthers()
	passLocks(os.Args)
	holdCommands()
	os.Args = withLimits(withStableFDs(asRootMade(gvisor.AfterPrewarmer(os.Args), ownIDs())))
	return runRunsc()
}

// firstStableFD is where what the agent inherits is in every sentry: below the
// numbers that gVisor keeps stable for the same reason, its standard streams'.
const firstStableFD = 240

// withStableFDs moves the descriptors that are passed on to numbers that are
// the same in each sentry: a kernel that goes on from memory looks for its
// sockets where they were.
func withStableFDs(args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		v, ok := strings.CutPrefix(a, "--pass-fd=")
		host, guest, both := strings.Cut(v, ":")
		from, err := strconv.Atoi(host)
		to, gerr := strconv.Atoi(guest)
		if !ok || !both || err != nil || gerr != nil {
			continue
		}
		if unix.Dup3(from, firstStableFD+to, 0) == nil && unix.Close(from) == nil {
			args[i] = fmt.Sprintf("--pass-fd=%d:%d", firstStableFD+to, to)
		}
	}
	return args
}

// withLimits returns args with the instance's memory size and processor count in
// place of the host's. Where the spec says neither, args stay as they are.
func withLimits(args []string) []string {
	spec, err := donatedSpec(args)
	if err != nil || spec.Linux == nil || spec.Linux.Resources == nil {
		return args
	}
	args = slices.Clone(args)
	res := spec.Linux.Resources
	if i := slices.Index(args, "--total-memory"); i >= 0 && i+1 < len(args) && res.Memory != nil && res.Memory.Limit != nil {
		args[i+1] = strconv.FormatInt(*res.Memory.Limit, 10)
	}
	if i := slices.Index(args, "--total-memory"); i >= 0 && res.CPU != nil && res.CPU.Quota != nil && res.CPU.Period != nil {
		n := gvisor.CPUCount(*res.CPU.Quota, *res.CPU.Period)
		args = slices.Insert(args, i, "--cpu-num", strconv.Itoa(n))
	}
	return args
}

// donatedSpec reads the spec from the descriptor that gVisor passes, without
// moving its offset or owning it.
func donatedSpec(args []string) (*specs.Spec, error) {
	for _, a := range args {
		v, ok := strings.CutPrefix(a, "--spec-fd=")
		if !ok {
			continue
		}
		fd, err := strconv.Atoi(v)
		if err != nil {
			return nil, err
		}
		var spec specs.Spec
		err = json.NewDecoder(io.NewSectionReader(rawFile(fd), 0, 1<<20)).Decode(&spec)
		return &spec, err
	}
	return nil, os.ErrNotExist
}

// rawFile reads a descriptor that someone else owns.
type rawFile int

func (fd rawFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := unix.Pread(int(fd), p, off)
	if n == 0 && err == nil && len(p) > 0 {
		return 0, io.EOF
	}
	return max(n, 0), err
}
