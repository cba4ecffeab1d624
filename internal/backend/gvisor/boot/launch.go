package boot

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	gvlog "gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// launcherMain reads a gvisor.Order, boots its instance and answers with the pids. It runs
// in a mount namespace of its own, which dies with it and the instance's gofer.
func launcherMain(in io.Reader, out io.Writer, maker instance.LinkMaker) error {
	// gVisor restores namespaces from the thread group's leader: keep to it.
	runtime.LockOSThread()
	var p gvisor.Order
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if p.Rootless {
		if err := role.BecomeRoot(); err != nil {
			return err
		}
		if err := instance.MakeLink(&p.Layout, maker); err != nil {
			return err
		}
	} else if err := syscall.Setgroups(nil); err != nil { // the sentry keeps those that we have
		return fmt.Errorf("leave groups: %w", err)
	}
	if err := p.Groups.Enter(); err != nil {
		return err
	}
	unix.Umask(0o022)
	p.TellCopied(out)
	if err := instance.Compose(&p.Layout); err != nil {
		return err
	}
	spec := ociSpec(&p)
	if err := instance.WriteJSON(filepath.Join(instance.DirBundle, "config.json"), spec); err != nil {
		return err
	}
	if !weak.On(weak.HostSetIDAllowed) {
		if err := seccomp.RefuseSetIDEverywhere(); err != nil {
			return fmt.Errorf("install system call filter: %w", err)
		}
	}
	answer, err := boot(&p, spec)
	if err != nil {
		return err
	}
	answer.Instead = p.Instead
	return json.NewEncoder(out).Encode(answer)
}

// boot starts the sentry and the gofer, and in them the guest agent.
func boot(p *gvisor.Order, spec *specs.Spec) (*gvisor.Launched, error) {
	conf, err := runscConfig(p)
	if err != nil {
		return nil, fmt.Errorf("configure gvisor: %w", err)
	}
	gvlog.SetTarget(gvlog.GoogleEmitter{Writer: &gvlog.Writer{Next: io.Discard}})
	if err := nullStdio(); err != nil {
		return nil, err
	}
	if err := offerSidecars(); err != nil {
		return nil, err
	}
	entry, err := entry()
	if err != nil {
		return nil, err
	}
	defer entry.Close()
	agent := instance.Handed()
	defer agent.Close()
	var c *container.Container
	err = asSentry(p, func() (err error) {
		c, err = container.New(conf, container.Args{
			ID: p.ID, Spec: spec, BundleDir: filepath.Join(p.Dir, instance.DirBundle),
			ExecFile: entry,
			PassFiles: map[int]*os.File{
				control.ProgramFD: agent.Program, control.SocketFD: agent.Socket, control.ConfigFD: agent.Config,
			},
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create gvisor sandbox: %w", err)
	}
	if p.Resume {
		err = c.Restore(conf, filepath.Join(p.Dir, instance.DirMemoryUsed), false, false, nil)
	} else {
		err = c.Start(conf)
	}
	if err != nil {
		_ = c.Destroy()
		return nil, fmt.Errorf("start gvisor sandbox: %w", err)
	}
	return &gvisor.Launched{Sentry: c.SandboxPid(), Gofer: c.GoferPid.Load()}, nil
}

// nullStdio gives the instance /dev/null for its standard streams: gVisor hands
// down os.Stdin and its like, and ours lead to the daemon.
func nullStdio() error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	os.Stdin, os.Stdout = null, null
	if os.Getenv("CARBOY_DEBUG_STDERR") == "" {
		os.Stderr = null
	}
	return nil
}

func network(linked bool) string {
	if weak.On(weak.GVisorNetworkHost) {
		return "host"
	}
	if linked {
		return "sandbox"
	}
	return "none"
}

// sockets says which of the host's sockets are there for programs that bind to
// paths. The gofer makes them on the host, where another sandbox that sees the
// place could dial them and pass on what it has open. Where anything is shared it makes
// none: gVisor's kernel then keeps them in its memory, for this instance alone.
func sockets(shared []string) string {
	switch {
	case weak.On(weak.GVisorSocketsOpen):
		return "all"
	case len(shared) > 0 && !weak.On(weak.SocketsShared):
		return "none"
	}
	return "create"
}

// devices says that a device's file in a shared directory is one of gVisor's own,
// or none. It is gVisor's default, and was not always.
func devices() string {
	if weak.On(weak.GVisorDevicesOpen) {
		return "passthrough"
	}
	return "emulated-only"
}

// runscConfig holds every flag that differs from gVisor's own default.
func runscConfig(p *gvisor.Order) (*config.Config, error) {
	args := []string{
		"--root=" + filepath.Join(p.Dir, instance.DirState),
		"--platform=systrap",
		"--network=" + network(p.Linked),
		"--ignore-cgroups",                  // ours are entered already, and cover the launcher too
		"--directfs=false",                  // the sentry touches no file of the host
		"--host-uds=" + sockets(p.Shared()), // those that programs bind to paths
		"--character-device-policy=" + devices(),
		"--overlay2=none",         // layers are the host kernel's overlays
		"--file-access=exclusive", // nothing but the instance writes its root
		"--file-access-mounts=shared",
		"--in-sandbox-cgroup=v2",
		"--host-settings=ignore",
		"--sidecar-usage-policy=STRICT",
		"--app-huge-pages=false",
		flagRootless, // with root too: see asSentry
	}
	files, err := filesOfEach()
	if err != nil {
		return nil, err
	}
	args = append(args, "--fdlimit="+strconv.FormatUint(files, 10))
	if p.LogDir != "" {
		args = append(args, "--debug", "--debug-log="+p.LogDir+"/")
	}
	fs := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	return config.NewFromFlags(fs)
}
