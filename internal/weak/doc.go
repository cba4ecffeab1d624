// Package weak names the weaknesses that tests seed: each takes one part of a
// wall or of a gate away, so that a test which should notice can be seen to.
// Those in this file are of the walls, and have rows in test/escape; those in
// gate.go and daemon.go have rows in test/e2e.
//
// They exist in binaries built with the tag "weakened" alone. In every other
// binary On is a constant false, the compiler drops what it guards, and no
// environment variable is read. A weakened carboy says so on standard error
// whenever it is called, and its version ends in "-weakened".
package weak

// A Weakness is the name of one missing part.
type Weakness string

// Of the commands' jail, behind every wall.
const (
	CapabilityKept   Weakness = "capability-kept"    // commands keep CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_OVERRIDE
	NoNewPrivsOff    Weakness = "no-new-privs-off"   // set-id programs work
	SetIDAllowed     Weakness = "set-id-allowed"     // no filter against set-id mode bits
	PIDsShared       Weakness = "pids-shared"        // commands are in the agent's pid namespace
	IPCShared        Weakness = "ipc-shared"         // commands are in the agent's ipc namespace
	ControlShown     Weakness = "control-shown"      // the agent's directory is not covered
	ProcKept         Weakness = "proc-kept"          // /proc is the agent's own
	ProcSysWritable  Weakness = "proc-sys-writable"  // nothing of /proc is read-only
	LimitsWritable   Weakness = "limits-writable"    // what commands are shown of their limits is not read-only
	DescriptorsKept  Weakness = "descriptors-kept"   // commands inherit the agent's open files
	BirthOpen        Weakness = "birth-open"         // a command's program is opened while its process has the agent's files
	ProgramShown     Weakness = "program-shown"      // the agent's program can be the interpreter of a command's
	GroupsKept       Weakness = "groups-kept"        // commands keep group 0
	CommandsAsRoot   Weakness = "commands-as-root"   // commands run as uid 0, whoever was asked for
	SudoGiven        Weakness = "sudo-given"         // commands become root by sudo, asked for or not, over a tree of the host too
	IOUringAllowed   Weakness = "io-uring-allowed"   // io_uring is not refused
	AsyncIOAllowed   Weakness = "async-io-allowed"   // the list allows io_setup and its kind
	FilterOff        Weakness = "filter-off"         // no list of allowed system calls at all
	KeyringAllowed   Weakness = "keyring-allowed"    // the list allows keyctl and its kind
	UserfaultAllowed Weakness = "userfault-allowed"  // the list allows userfaultfd
	BPFAllowed       Weakness = "bpf-allowed"        // the list allows bpf
	PerfAllowed      Weakness = "perf-allowed"       // the list allows perf_event_open
	MountAllowed     Weakness = "mount-allowed"      // the filter allows the mount family, pivot_root and chroot
	NamespaceAllowed Weakness = "namespace-allowed"  // the list allows unshare, setns and clone with namespace flags
	PtraceAllowed    Weakness = "ptrace-allowed"     // the list allows process_vm_writev, kcmp and pidfd_getfd
	TracerAllowed    Weakness = "tracer-allowed"     // behind gVisor a tracer may stop another at its system calls
	ForeignAllowed   Weakness = "foreign-allowed"    // calls of x32 and i386 are not refused
	RawSocketAllowed Weakness = "raw-socket-allowed" // the list allows every socket family
	ModuleAllowed    Weakness = "module-allowed"     // the list allows init_module, kexec_load and their kind
	ClockAllowed     Weakness = "clock-allowed"      // the list allows settimeofday, clock_settime, sethostname
	LeaseAllowed     Weakness = "lease-allowed"      // the list allows every command of fcntl
	LandlockOff      Weakness = "landlock-off"       // no Landlock domain
	SocketsShared    Weakness = "sockets-shared"     // commands make sockets in what other sandboxes see as well
)

// Of the process wall.
const (
	UserShared       Weakness = "user-shared"       // the instance's root is the host's root
	NetworkShared    Weakness = "network-shared"    // the instance is in the host's network namespace
	HostnameShared   Weakness = "hostname-shared"   // the instance is in the host's uts namespace
	HostIPCShared    Weakness = "host-ipc-shared"   // the instance is in the host's ipc namespace
	HostPIDsShared   Weakness = "host-pids-shared"  // the instance is in the host's pid namespace
	CgroupsShared    Weakness = "cgroups-shared"    // the instance is in the host's cgroup namespace, its trees mounted
	OldRootKept      Weakness = "old-root-kept"     // the host's root stays mounted, at /run/host
	HostDevices      Weakness = "host-devices"      // /dev is the host's, and devices work
	HostSys          Weakness = "host-sys"          // /sys is the host's, writable
	HostTmp          Weakness = "host-tmp"          // /tmp is the host's
	HostShm          Weakness = "host-shm"          // /dev/shm is the host's
	HostProc         Weakness = "host-proc"         // the host's /proc is mounted at /mnt
	DescriptorLeaked Weakness = "descriptor-leaked" // a descriptor of the host's / is left open
	EnvironmentKept  Weakness = "environment-kept"  // the daemon's environment reaches commands
	FilesUnbounded   Weakness = "files-unbounded"   // each process may open as many files as the host lets it
	EndUnchecked     Weakness = "end-unchecked"     // nobody looks whether the disk of an ended instance is free
	CountsUnbounded  Weakness = "counts-unbounded"  // an instance may have all the inotify instances, watches and terminals of the host
)

// Of the instance's file system, behind every wall.
const (
	HostRootShown    Weakness = "host-root-shown"     // the host's / is mounted at /mnt
	RunShown         Weakness = "run-shown"           // the host's /run, with its sockets, is mounted at /mnt
	MasksOff         Weakness = "masks-off"           // masked directories of the host image are shown
	SetIDMounts      Weakness = "set-id-mounts"       // mounts without nosuid
	DeviceMounts     Weakness = "device-mounts"       // mounts without nodev
	WorkspaceDirect  Weakness = "workspace-direct"    // a copy-on-write workspace is the host's tree itself
	ReadOnlyWritable Weakness = "read-only-writable"  // :ro directories are writable
	RootWritable     Weakness = "root-writable"       // a read-only root is as any other
	PointUnpinned    Weakness = "point-unpinned"      // what leads to a mount below /workspace can be renamed away
	GitUnprotected   Weakness = "git-unprotected"     // hooks and configuration under :rw are writable
	GitUnpinned      Weakness = "git-unpinned"        // .git under :rw can be renamed away
	ReplacedAccepted Weakness = "replaced-accepted"   // another directory than the accepted one is mounted
	HostSetIDAllowed Weakness = "host-set-id-allowed" // the wall's own processes may set set-id bits on the host
)

// Of the gVisor wall.
const (
	GVisorNetworkHost Weakness = "gvisor-network-host" // the guest's sockets are the host's
	GVisorSocketsOpen Weakness = "gvisor-sockets-open" // the guest may connect to sockets of the host
	SentriesShared    Weakness = "sentries-shared"     // every sentry runs as 65534, as other services do
	GVisorDevicesOpen Weakness = "gvisor-devices-open" // the guest's opening of a device's file opens the host's device
)

// Of the way between the host and the guest agent.
const (
	ControlShared Weakness = "control-shared" // the agent's socket, and a copy of its configuration, lie in the instance's root
)

// Of what comes back to the host.
const (
	EscapesRaw    Weakness = "escapes-raw"    // guest text is printed as it is
	HoldsOff      Weakness = "holds-off"      // apply holds nothing back
	LinksFollowed Weakness = "links-followed" // what the command line reads and writes is found through links that a guest made
	LinksOutMade  Weakness = "links-out-made" // cp makes links that lead out of the copy
	WayFollowed   Weakness = "way-followed"   // apply follows links on the way to what it changes
)
