package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/enter"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// roleLauncher is the name by which this binary is executed again to launch an
// instance without root.
const roleLauncher = "carboy-process-launcher"

// Roles are those of this package. Launchers make links by maker; nil: none.
func Roles(maker instance.LinkMaker) role.Table {
	return role.Table{roleLauncher: func() error { return launcherMain(os.Stdin, os.Stdout, maker) }}
}

// init keeps the main thread for the main goroutine: unlike others it would
// not end with a goroutine that is locked to it, and the mount namespace that
// launch makes would stay, and with it the instance's disk.
func init() { runtime.LockOSThread() }

// launched is what a launcher answers.
type launched struct {
	PID     int    `json:"pid"`     // on the host
	Instead string `json:"instead"` // see instance.Layout
}

// launch starts an instance's first process and returns its pid. Root does that on
// a thread of this process, whose mount namespace is its own and ends with
// it; others need a process, whose user namespace is.
func (b *Backend) launch(ctx context.Context, sb *sandbox.Sandbox, p *instance.Layout, agent *instance.Handover) ([]int, error) {
	link := sb.Link
	if b.Rootless() {
		var answer launched
		err := b.Launch(ctx, roleLauncher, p, &answer, agent, link)
		p.Instead = answer.Instead
		return []int{answer.PID}, err
	}
	type result struct {
		pid int
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var r result
		if r.err = unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); r.err == nil && link != nil {
			r.err = join(int(link.NetNS.Fd()))
		}
		if r.err == nil {
			unix.Umask(0o022)
			r.pid, r.err = launchHere(p, agent)
		}
		done <- r
	}()
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("launch instance: %w", r.err)
	}
	return []int{r.pid}, nil
}

// join puts this thread, and what it starts, into a link's network namespace.
func join(netns int) error {
	if weak.On(weak.NetworkShared) {
		return nil
	}
	if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("join the link: %w", err)
	}
	return nil
}

// launcherMain reads a layout, starts its instance and answers with the pid.
func launcherMain(in io.Reader, out io.Writer, maker instance.LinkMaker) error {
	runtime.LockOSThread()
	var p instance.Layout
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read layout: %w", err)
	}
	if err := role.BecomeRoot(); err != nil {
		return err
	}
	if p.Linked {
		if err := instance.MakeLink(&p, maker); err != nil {
			return err
		}
		if err := join(instance.LinkFD); err != nil {
			return err
		}
	}
	unix.Umask(0o022)
	p.TellCopied(out)
	agent := instance.Handed()
	defer agent.Close()
	pid, err := launchHere(&p, agent)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(launched{PID: pid, Instead: p.Instead})
}

// launchHere composes the instance in this thread's mount namespace and starts its
// first process in it.
func launchHere(p *instance.Layout, agent *instance.Handover) (int, error) {
	if err := instance.Compose(p); err != nil {
		return 0, err
	}
	if err := os.Chdir(filepath.Join(instance.DirMounts, instance.MountRoot)); err != nil {
		return 0, err
	}
	group, err := p.Groups.Unified()
	if err != nil {
		return 0, err
	}
	if group != nil {
		defer group.Close()
	}
	return fork(p, agent, group)
}

// shmBytes bounds /dev/shm, as container engines do.
const shmBytes = 64 << 20

// fork starts the instance's first process and waits until it has entered.
func fork(p *instance.Layout, agent *instance.Handover, group *os.File) (int, error) {
	share, err := counts()
	if err != nil {
		return 0, err
	}
	o := enter.Order{Hostname: "carboy", ShmBytes: shmBytes, Counts: share, Regroup: p.Groups.Old(), Linked: p.Linked}
	if len(p.Shown) > 0 {
		o.Groups, o.Control = "../"+instance.MountGroups, instance.GuestControl
	}
	order, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	in, inW, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	defer inW.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer errR.Close()
	defer errW.Close()
	prog, err := ownMount(agent.Program)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	// The program is one of the child's files, for a fork may lay others over
	// the numbers of those that it is not told of.
	files := []uintptr{in.Fd(), errW.Fd(), errW.Fd(), prog.Fd(), agent.Socket.Fd(), agent.Config.Fd()}
	if weak.On(weak.DescriptorLeaked) {
		root, err := os.Open("/")
		if err != nil {
			return 0, err
		}
		defer root.Close()
		files = append(files, root.Fd())
	}
	pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", control.ProgramFD), []string{enter.Name, p.Dir}, &syscall.ProcAttr{
		Env:   environment(),
		Files: files,
		Sys:   attributes(p, group),
	})
	if err != nil {
		return 0, fmt.Errorf("start the instance's first process: %w", err)
	}
	errW.Close()
	err = p.Groups.Add(pid)
	if err == nil {
		// Until then the kernel may still be mapping the program in, which it refuses
		// on a mount that executes nothing.
		err = enter.AwaitBegun(errR)
	}
	if err == nil {
		err = prog.seal()
	}
	if err == nil { // it waits for its orders
		_, err = inW.Write(order)
	}
	inW.Close()
	// What it says until it lets go of the host is why it could not.
	said, rerr := io.ReadAll(io.LimitReader(errR, 4096))
	if msg := strings.TrimSpace(string(said)); msg != "" {
		rerr = errors.New(msg)
	}
	if err = errors.Join(err, rerr); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return 0, fmt.Errorf("enter the instance: %w", err)
	}
	return pid, nil
}

// environment is the first process's: nothing of the daemon's.
func environment() []string {
	env := append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		// Or Go's runtime holds the host's cgroup files open from its first moment.
		"GODEBUG=containermaxprocs=0,updatemaxprocs=0",
	}, weak.Environ()...)
	if weak.On(weak.EnvironmentKept) {
		env = append(env, os.Environ()...)
	}
	return env
}

// attributes are the namespaces of an instance.
func attributes(p *instance.Layout, group *os.File) *syscall.SysProcAttr {
	flags := uintptr(unix.CLONE_NEWNS)
	for w, f := range map[weak.Weakness]uintptr{
		weak.HostPIDsShared: unix.CLONE_NEWPID, weak.HostIPCShared: unix.CLONE_NEWIPC,
		weak.HostnameShared: unix.CLONE_NEWUTS, weak.NetworkShared: unix.CLONE_NEWNET,
	} {
		if f == unix.CLONE_NEWNET && p.Linked {
			continue // it is in the link's
		}
		if !weak.On(w) {
			flags |= f
		}
	}
	a := &syscall.SysProcAttr{Setsid: true}
	if group != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(group.Fd())
	}
	if !weak.On(weak.CgroupsShared) {
		// Not with clone: the namespace would begin at this process's group.
		a.Unshareflags = unix.CLONE_NEWCGROUP
	}
	if p.Base != 0 {
		flags |= unix.CLONE_NEWUSER
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(p.Base), Size: instance.Span}}
		a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = ids, ids, true
		a.Credential = &syscall.Credential{NoSetGroups: false}
	}
	a.Cloneflags = flags
	return a
}
