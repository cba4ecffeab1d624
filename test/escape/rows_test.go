package escape

import (
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/long"
)

// row is a weakness behind one wall, and the attempts that notice it: each of
// them, every time.
type row struct {
	weak weak.Weakness
	// with is seeded as well: weak is a second line of defence, which shows
	// only where the first one is gone. Without weak, with alone must leave
	// these attempts green.
	with    []weak.Weakness
	wall    string
	user    string
	noticed []string
}

func (r row) seeds() []weak.Weakness { return append([]weak.Weakness{r.weak}, r.with...) }

func (r row) name() string { return joined(r.seeds(), "+") + "/" + r.wall + "/" + r.user }

// title names the weakness in tables.
func (r row) title() string {
	if len(r.with) == 0 {
		return string(r.weak)
	}
	return string(r.weak) + ", where " + joined(r.with, " and ") + " is seeded too"
}

const (
	gvisor  = facts.GVisor
	process = facts.Process
)

// on is a row for a user behind one wall.
func on(wall string, w weak.Weakness, noticed ...string) row {
	return row{weak: w, wall: wall, user: "user", noticed: noticed}
}

// asRoot is r for root inside.
func asRoot(r row) row {
	r.user = "root"
	return r
}

// given is r where more is seeded.
func given(r row, with ...weak.Weakness) row {
	r.with = with
	return r
}

// rows holds every weakness at least once.
var rows = []row{
	on(gvisor, weak.CapabilityKept, "capabilities"),
	on(process, weak.CapabilityKept, "capabilities"),
	given(on(process, weak.CapabilityKept, "newborns"), weak.PIDsShared),
	on(gvisor, weak.NoNewPrivsOff, "no-new-privs"),
	given(on(process, weak.NoNewPrivsOff, "no-new-privs"), weak.HostSetIDAllowed),
	on(gvisor, weak.SetIDAllowed, "set-id-bits"),
	given(on(process, weak.SetIDAllowed, "set-id-bits"), weak.HostSetIDAllowed),
	on(gvisor, weak.PIDsShared, "agent-processes"),
	on(process, weak.PIDsShared, "agent-processes", "namespaces-from-outside"),
	on(process, weak.IPCShared, "namespaces-from-outside"),
	given(on(gvisor, weak.ControlShown, "control-directory"), weak.ControlShared),
	given(asRoot(on(gvisor, weak.ControlShown, "control-directory")), weak.ControlShared),
	on(process, weak.ControlShown, "control-directory"),
	given(on(gvisor, weak.ControlShared, "control-directory"), weak.ControlShown),
	given(asRoot(on(gvisor, weak.ControlShared, "control-directory")), weak.ControlShown),
	on(gvisor, weak.ProcKept, "own-proc"),
	on(process, weak.ProcKept, "own-proc"),
	on(gvisor, weak.ProcSysWritable, "proc-read-only"),
	asRoot(on(gvisor, weak.ProcSysWritable, "proc-read-only", "proc-writes")),
	on(process, weak.ProcSysWritable, "proc-read-only"),
	asRoot(on(gvisor, weak.LimitsWritable, "mounts", "sys-writes", "control-groups")),
	on(gvisor, weak.DescriptorsKept, "descriptors"),
	on(process, weak.DescriptorsKept, "descriptors"),
	on(process, weak.BirthOpen, "interpreters"),
	on(gvisor, weak.ProgramShown, "agent-program"),
	asRoot(on(gvisor, weak.ProgramShown, "agent-program")),
	given(on(process, weak.ProgramShown, "agent-program"), weak.LandlockOff),
	on(gvisor, weak.GroupsKept, "groups"),
	on(process, weak.GroupsKept, "groups"),
	on(gvisor, weak.CommandsAsRoot, "identity"),
	on(process, weak.CommandsAsRoot, "identity"),
	on(gvisor, weak.SudoGiven, "become-root"),
	on(process, weak.IOUringAllowed, "io-uring", "calls-ring"),
	on(process, weak.AsyncIOAllowed, "calls-async"),
	on(process, weak.FilterOff, "calls-mount", "calls-namespace", "calls-keyring", "calls-module", "calls-other", "keyring"),
	on(process, weak.KeyringAllowed, "keyring", "calls-keyring"),
	on(process, weak.UserfaultAllowed, "userfault", "calls-userfault"),
	on(process, weak.BPFAllowed, "calls-bpf"),
	on(process, weak.PerfAllowed, "perf-events", "calls-perf"),
	on(gvisor, weak.MountAllowed, "make-mounts"),
	asRoot(on(gvisor, weak.MountAllowed, "make-mounts")),
	on(process, weak.MountAllowed, "calls-mount"),
	on(process, weak.NamespaceAllowed, "make-namespaces", "calls-namespace"),
	on(gvisor, weak.TracerAllowed, "traced-calls"),
	asRoot(on(gvisor, weak.TracerAllowed, "traced-calls")),
	on(process, weak.PtraceAllowed, "calls-trace"),
	given(on(process, weak.ForeignAllowed, "x32-calls", "i386-calls"), weak.HostSetIDAllowed),
	on(process, weak.RawSocketAllowed, "socket-families"),
	on(process, weak.ModuleAllowed, "calls-module"),
	on(process, weak.ClockAllowed, "calls-clock"),
	on(process, weak.LeaseAllowed, "leases"),
	on(process, weak.LandlockOff, "landlock"),
	on(gvisor, weak.SocketsShared, "passed-descriptors"),
	on(process, weak.SocketsShared, "passed-descriptors"),
	given(on(process, weak.EndUnchecked, "held-after-end"), weak.SocketsShared),

	on(process, weak.UserShared, "host-namespaces", "user-map"),
	on(process, weak.NetworkShared, "host-namespaces", "host-loopback", "abstract-sockets", "interfaces"),
	on(process, weak.HostnameShared, "host-namespaces", "host-name"),
	on(process, weak.HostIPCShared, "namespaces-from-outside"),
	given(on(process, weak.HostIPCShared, "system-v"), weak.IPCShared),
	on(process, weak.HostPIDsShared, "namespaces-from-outside", "proc-from-outside"),
	given(on(process, weak.HostPIDsShared, "host-processes"), weak.PIDsShared),
	on(process, weak.CgroupsShared, "mounts", "control-groups"),
	on(process, weak.OldRootKept, "host-files"),
	on(process, weak.HostDevices, "devices"),
	on(process, weak.HostSys, "mount-flags", "sys-writes"),
	on(process, weak.HostTmp, "host-tmp", "copy-reads-links"),
	on(process, weak.HostShm, "shared-memory"),
	on(process, weak.HostProc, "host-processes"),
	on(process, weak.DescriptorLeaked, "descriptors-from-outside", "inherited-descriptors"),
	on(process, weak.EnvironmentKept, "environment-from-outside"),
	on(process, weak.FilesUnbounded, "open-files"),
	on(process, weak.CountsUnbounded, "watchers", "terminals"),

	on(gvisor, weak.HostRootShown, "host-files"),
	on(process, weak.HostRootShown, "host-files", "host-state"),
	on(gvisor, weak.RunShown, "planted-names", "host-sockets"),
	on(process, weak.RunShown, "planted-names", "host-sockets"),
	on(gvisor, weak.MasksOff, "masked"),
	on(process, weak.MasksOff, "masked"),
	on(process, weak.SetIDMounts, "mount-flags"),
	on(process, weak.DeviceMounts, "mount-flags", "shared-device"),
	on(gvisor, weak.WorkspaceDirect, "workspace-source"),
	on(process, weak.WorkspaceDirect, "workspace-source"),
	on(gvisor, weak.ReadOnlyWritable, "read-only-tree", "shared-read-only"),
	on(process, weak.ReadOnlyWritable, "read-only-tree", "shared-read-only"),
	on(gvisor, weak.RootWritable, "read-only-root"),
	asRoot(on(gvisor, weak.RootWritable, "read-only-root")),
	on(process, weak.RootWritable, "read-only-root"),
	on(gvisor, weak.PointUnpinned, "mount-points"),
	on(process, weak.PointUnpinned, "mount-points"),
	on(gvisor, weak.GitUnprotected, "git-hooks", "shared-git", "git-replaced"),
	on(process, weak.GitUnprotected, "git-hooks", "shared-git", "git-replaced"),
	on(gvisor, weak.GitUnpinned, "git-pinned", "shared-git", "git-replaced"),
	on(process, weak.GitUnpinned, "git-pinned", "shared-git", "git-replaced"),
	on(gvisor, weak.ReplacedAccepted, "replaced-directory"),
	on(process, weak.ReplacedAccepted, "replaced-directory"),
	given(on(gvisor, weak.HostSetIDAllowed, "shared-dangerous"), weak.SetIDAllowed),
	given(on(process, weak.HostSetIDAllowed, "shared-dangerous"), weak.SetIDAllowed),

	on(gvisor, weak.GVisorNetworkHost, "host-loopback"),
	on(gvisor, weak.GVisorSocketsOpen, "shared-socket"),
	on(gvisor, weak.SentriesShared, "sentry-signals"),
	given(on(gvisor, weak.GVisorDevicesOpen, "shared-device"), weak.DeviceMounts),
	given(on(gvisor, weak.DeviceMounts, "shared-device"), weak.GVisorDevicesOpen),

	on(gvisor, weak.ControlShared, "control-plane"),
	on(process, weak.ControlShared, "control-plane"),

	on(gvisor, weak.EscapesRaw, "terminal-text"),
	on(gvisor, weak.HoldsOff, "apply-holds"),
	on(gvisor, weak.LinksFollowed, "copy-of-planted-links", "copy-follows-links", "copy-through-planted-links"),
	on(process, weak.LinksFollowed, "copy-of-planted-links", "copy-follows-links", "copy-through-planted-links"),
	on(gvisor, weak.LinksOutMade, "copy-dangerous"),
	on(gvisor, weak.WayFollowed, "apply-follows-links"),
}

// mine are the rows of the walls that are tried: in make test a row for each attempt that nothing
// but a row shows to find anything, in make test-long all of them.
func mine(t *testing.T) (list []row) {
	t.Helper()
	need := onlyByRows(t)
	seen := map[string]bool{} // attempts
	for _, r := range rows {
		needed := slices.DeleteFunc(slices.Clone(r.noticed), func(n string) bool { return !need(n) })
		if slices.Contains(walls(), r.wall) && (full || long.Fresh(seen, needed...)) {
			list = append(list, r)
		}
	}
	return list
}

// tableRow is r as a document has it.
func (r row) tableRow(noticed []string) string {
	return "| " + r.title() + " | " + r.wall + " | " + r.user + " | " + strings.Join(noticed, ", ") + " |"
}

const tableHead = "| weakness | wall | user | attempts that notice |\n|---|---|---|---|\n"

// table is all rows, as the threat model has them.
func table() string {
	var b strings.Builder
	b.WriteString(tableHead)
	for _, r := range rows {
		b.WriteString(r.tableRow(r.noticed) + "\n")
	}
	return b.String()
}
