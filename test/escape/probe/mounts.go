package main

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

var mountProbes = []probe{
	{name: "mounts", run: mountTable},
	{name: "mount-flags", native: true, run: mountFlags},
	{name: "proc-read-only", run: procReadOnly},
	{name: "proc-writes", run: procWrites},
	{name: "sys-writes", run: sysWrites},
	{name: "kernel-files", native: true, run: kernelFiles},
	{name: "control-directory", run: controlDirectory},
	{name: "uncover", run: uncover},
	{name: "make-mounts", run: makeMounts},
	{name: "control-groups", run: controlGroups},
}

// mount is a line of mountinfo.
type mount struct {
	root, target, fstype string
	options, super       []string
}

func mounts() (list []mount) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		list = append(list, mount{
			root: l[3], target: l[4], options: strings.Split(l[5], ","),
			fstype: r[0], super: strings.Split(r[2], ","),
		})
	}
	return list
}

func (m mount) has(option string) bool { return slices.Contains(m.options, option) }

// device tells a mount that shows a single node of the host's /dev.
func (m mount) device() bool {
	return m.fstype == "devtmpfs" && m.root != "/" && within(m.target, "/dev")
}

// groups tells a control group of the box's that commands are shown, and can't write to.
func (m mount) groups() bool {
	return (m.fstype == "cgroup" || m.fstype == "cgroup2") && within(m.target, facts.Groups) && m.has("ro")
}

// kernelTypes are file systems by which a kernel is asked or told things.
var kernelTypes = []string{
	"cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "configfs", "pstore", "efivarfs",
	"fusectl", "hugetlbfs", "autofs", "binfmt_misc", "nsfs", "devtmpfs", "rpc_pipefs", "selinuxfs",
}

// mountTable looks for mounts that no box has.
func mountTable(t *trial) {
	list := mounts()
	for _, m := range list {
		switch {
		case within(m.target, facts.Control): // covered: see control-directory
		case m.device(), m.groups():
		case slices.Contains(kernelTypes, m.fstype):
			t.find("%s is mounted on %s", m.fstype, m.target)
		case strings.Contains(m.target, t.Marker):
			t.find("a mount of the host's is on %s", m.target)
		}
	}
	if len(list) == 0 {
		t.find("no mount is seen")
	}
	t.note("%d mounts", len(list))
}

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// mountFlags wants set-id programs and devices to mean nothing on any mount.
func mountFlags(t *trial) {
	for _, m := range mounts() {
		if within(m.target, facts.Control) {
			continue // covered: see control-directory
		}
		if !m.has("nosuid") && !m.device() {
			t.find("%s on %s is without nosuid", m.fstype, m.target)
		}
		if !m.has("nodev") && !within(m.target, "/dev") {
			t.find("%s on %s is without nodev", m.fstype, m.target)
		}
		if m.fstype == "sysfs" && !m.has("ro") {
			t.find("/sys is writable")
		}
	}
	t.note("all are nosuid and nodev")
}

// sensitive are what lets root change or stop the kernel through /proc.
var sensitive = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"}

func procReadOnly(t *trial) {
	list := mounts()
	for _, name := range sensitive {
		if _, err := os.Stat(name); err != nil {
			continue
		}
		i := slices.IndexFunc(list, func(m mount) bool { return m.target == name })
		proc := slices.IndexFunc(list, func(m mount) bool { return m.target == "/proc" && m.has("ro") })
		if proc < 0 && (i < 0 || !list[i].has("ro")) {
			t.find("%s is not read-only", name)
		}
	}
	t.note("/proc/sys and its kind are read-only")
}

// procWrites opens for writing what would change the kernel, and writes what
// is there already.
func procWrites(t *trial) {
	names := []string{
		"sys/kernel/core_pattern", "sys/kernel/hostname", "sys/kernel/modprobe", "sys/kernel/hotplug", "sys/kernel/randomize_va_space",
		"sys/kernel/ns_last_pid", "sys/kernel/shmmax", "sys/kernel/sem", "sys/vm/overcommit_memory", "sys/vm/drop_caches", "sys/vm/panic_on_oom",
		"sys/net/ipv4/ip_forward", "sys/net/ipv4/tcp_rmem", "sys/net/core/somaxconn", "sys/fs/binfmt_misc/register", "sys/fs/suid_dumpable",
		"sysrq-trigger", "irq/default_smp_affinity", "kcore", "kmem", "mtrr", "acpi/wakeup", "scsi/scsi",
	}
	for _, n := range names {
		f, err := os.OpenFile("/proc/"+n, os.O_WRONLY, 0)
		if err == nil {
			f.Close()
			t.find("/proc/%s can be opened for writing", n)
		}
	}
	// Of the host's processes, and of init.
	for _, n := range []string{"/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/1/setgroups"} {
		if os.Getuid() == 0 {
			break // root may write what is its own
		}
		if f, err := os.OpenFile(n, os.O_WRONLY, 0); err == nil {
			f.Close()
			t.find("%s can be opened for writing", n)
		}
	}
	t.note("%d files, and none can be written", len(names))
}

func sysWrites(t *trial) {
	names := []string{
		"/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state", "/sys/kernel/profiling",
		"/sys/module/kernel/parameters/panic", "/sys/module/printk/parameters/time", "/sys/kernel/debug", "/sys/kernel/tracing",
		"/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max",
		"/sys/fs/cgroup/memory/tasks", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/devices/system/cpu/online", "/sys/block", "/sys/class/net/eth0/mtu", "/sys/firmware/efi/efivars",
	}
	for _, n := range names {
		if f, err := os.OpenFile(n, os.O_WRONLY, 0); err == nil {
			f.Close()
			t.find("%s can be opened for writing", n)
		}
	}
	for _, dir := range []string{"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf"} {
		if entries, _ := os.ReadDir(dir); len(entries) > 0 && t.Native() {
			t.find("%s shows %d entries", dir, len(entries))
		}
	}
	for _, m := range mounts() {
		if m.fstype == "sysfs" && !m.has("ro") && t.Native() {
			t.find("%s is mounted writable", m.target)
		}
	}
	t.note("nothing of /sys can be written")
}

// kernelFiles reads what tells of the host's kernel and its memory.
func kernelFiles(t *trial) {
	for _, n := range []string{"/proc/kcore", "/proc/kpageflags", "/proc/kpagecount", "/proc/timer_list", "/proc/sched_debug", "/proc/kmsg", "/proc/vmallocinfo", "/proc/slabinfo"} {
		if k := readSome(n); k > 0 {
			t.find("%s can be read", n)
		}
	}
	b, _ := os.ReadFile("/proc/kallsyms")
	for line := range strings.Lines(string(b)) {
		if addr, _, _ := strings.Cut(line, " "); strings.Trim(addr, "0") != "" {
			t.find("/proc/kallsyms shows addresses")
			break
		}
	}
	t.note("none can be read")
}

func controlDirectory(t *trial) {
	entries, err := os.ReadDir(facts.Control)
	for _, e := range entries {
		t.find("%s/%s is seen", facts.Control, e.Name())
	}
	// The agent's own directory may be closed to this user; that it is covered
	// is a promise of its own.
	var top *mount
	for _, m := range mounts() {
		if m.target == facts.Control {
			top = &m
		}
	}
	if top == nil && !errors.Is(err, os.ErrNotExist) || top != nil && (top.fstype != "tmpfs" || !top.has("ro")) {
		t.find("%s is not covered", facts.Control)
	}
	if f := path.Join(facts.Control, "probe"); os.WriteFile(f, nil, 0o600) == nil {
		t.find("%s can be written", facts.Control)
		_ = os.Remove(f)
	}
	t.note("%d entries, %v", len(entries), err)
}

// uncover takes away what covers the agent's directory, as it is and as root
// of a user namespace of its own.
func uncover(t *trial) {
	uncoverHere(func(what string) { t.find("%s", what) })
	out, err := inUser("uncover")
	if err != nil {
		t.note("in a user namespace: %v", err)
		return
	}
	for line := range strings.Lines(out) {
		t.find("in a user namespace: %s", strings.TrimSpace(line))
	}
	t.note("the cover stays, in a user namespace too")
}

func uncoverAsRoot(out io.Writer) {
	uncoverHere(func(what string) { _, _ = io.WriteString(out, what+"\n") })
}

func uncoverHere(find func(string)) {
	for _, target := range []string{facts.Control, "/proc", "/usr/etc", "/usr/local/etc"} {
		for _, flags := range []int{0, unix.MNT_DETACH} {
			if unix.Unmount(target, flags) == nil {
				find("umount2(" + target + ", " + strconv.Itoa(flags) + ") went through")
			}
		}
	}
	if entries, _ := os.ReadDir(facts.Control); len(entries) > 0 {
		find(facts.Control + " shows " + entries[0].Name())
	}
	// The same directory, reached past its mount.
	for _, dir := range []string{"/run/./carboy", "/run/../run/carboy", "/var/run/carboy"} {
		if _, err := os.Stat(dir + "/agent.sock"); err == nil {
			find(dir + "/agent.sock is there")
		}
	}
}

// controlGroups looks for the host's control groups, and for the file by
// which the older kind has root run a program.
func controlGroups(t *trial) {
	b, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		if parts := strings.SplitN(strings.TrimSpace(line), ":", 3); len(parts) == 3 && within(parts[2], "/carboy") {
			t.find("the group's path on the host is shown: %s", parts[2])
		}
	}
	for _, m := range mounts() {
		if m.fstype != "cgroup" && m.fstype != "cgroup2" || within(m.target, facts.Control) {
			continue
		}
		if !m.groups() {
			t.find("%s is mounted on %s", m.fstype, m.target)
		}
		if entries, _ := os.ReadDir(path.Join(m.target, "carboy")); len(entries) > 0 {
			t.find("%s shows other boxes' groups", m.target)
		}
		for _, n := range []string{"release_agent", "notify_on_release", "cgroup.procs", "devices.allow"} {
			if f, err := os.OpenFile(path.Join(m.target, n), os.O_WRONLY, 0); err == nil {
				f.Close()
				t.find("%s/%s can be written", m.target, n)
			}
		}
	}
	t.note("no control group is shown but the box's own")
}
