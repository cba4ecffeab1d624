package boot

import (
	"fmt"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// agentCapabilities are the guest agent's, inside the guest kernel alone: it
// makes namespaces, mounts and switches users. Commands get few or none.
var agentCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN",
	"CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_AUDIT_WRITE", "CAP_MKNOD",
}

// ociSpec describes the instance to gVisor. Its root is composed already; only
// what the guest must treat apart is a mount of its own.
func ociSpec(p *gvisor.Order) *specs.Spec {
	quota := int64(p.CPUs * gvisor.CPUPeriod)
	period := uint64(gvisor.CPUPeriod)
	mount := func(target, source string, options ...string) specs.Mount {
		options = append(options, "bind", "nosuid")
		if !weak.On(weak.DeviceMounts) {
			options = append(options, "nodev")
		}
		return specs.Mount{
			Type: "bind", Source: filepath.Join(p.Dir, instance.DirMounts, source), Destination: target, Options: options,
		}
	}
	mounts := []specs.Mount{
		{Type: "proc", Source: "proc", Destination: "/proc"},
		{Type: "tmpfs", Source: "tmpfs", Destination: "/dev/shm", Options: []string{"mode=1777", "size=64m", "nosuid", "nodev"}},
		// Named, so that gVisor does not lay a memory file system over it.
		mount("/tmp", "root/tmp"),
	}
	if weak.On(weak.ControlShared) {
		mounts = append(mounts, mount(instance.GuestControl, instance.DirShared, "rbind"))
	}
	for _, d := range append([]instance.Dir{p.Workspace}, p.Mounts...) {
		if d.Apart() {
			opt := "rw"
			if d.Mode == "ro" && !weak.On(weak.ReadOnlyWritable) {
				opt = "ro"
			}
			mounts = append(mounts, mount(d.Target, d.Share(), "rbind", opt))
		}
	}
	return &specs.Spec{
		Version: specs.Version,
		Process: &specs.Process{
			Args: []string{instance.FileAgent}, // its program is handed over
			Env: append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
				weak.Environ()...),
			Cwd: "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: agentCapabilities, Effective: agentCapabilities, Permitted: agentCapabilities,
			},
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1 << 16, Hard: 1 << 16}},
		},
		Root:        &specs.Root{Path: filepath.Join(p.Dir, instance.DirMounts, instance.MountRoot)},
		Hostname:    "carboy",
		Annotations: annotations(p),
		Mounts:      mounts,
		Linux: &specs.Linux{
			Namespaces: namespaces(p.Linked),
			Resources: &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: &p.Memory},
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
			},
		},
	}
}

// netNSPath is the namespace that a launcher was given, or made.
var netNSPath = fmt.Sprintf("/proc/self/fd/%d", instance.LinkFD)

func namespaces(linked bool) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
	}
	if !weak.On(weak.GVisorNetworkHost) {
		ns := specs.LinuxNamespace{Type: specs.NetworkNamespace}
		if linked {
			ns.Path = netNSPath
		}
		list = append(list, ns)
	}
	return list
}

// annotations tell the sentry what the rest of a spec does not.
func annotations(p *gvisor.Order) map[string]string {
	out := map[string]string{annotationShares: strings.Join(p.Locked(), "\n")}
	if weak.On(weak.MountAllowed) {
		out[annotationMounts] = "made"
	}
	return out
}
