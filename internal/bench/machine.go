package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a run was made on, as far as it tells figures apart.
type Machine struct {
	CPUs       int     `json:"cpus"`
	Model      string  `json:"model,omitempty"`
	Arch       string  `json:"arch"`
	Memory     uint64  `json:"memory"` // bytes
	Kernel     string  `json:"kernel"`
	System     string  `json:"system,omitempty"`     // the distribution's name for itself
	FileSystem string  `json:"file_system"`          // of the directory that the run worked in
	Load       float64 `json:"load"`                 // before the run: the average of a minute
	Hypervisor bool    `json:"hypervisor,omitempty"` // it is itself a virtual machine
}

// String is Machine in one line.
func (m Machine) String() string {
	model := m.Model
	if model == "" {
		model = m.Arch
	}
	text := fmt.Sprintf("%d × %s, %d GiB, Linux %s", m.CPUs, model, (m.Memory+1<<29)>>30, m.Kernel)
	if m.System != "" {
		text += ", " + m.System
	}
	if m.Hypervisor {
		text += ", virtual"
	}
	return fmt.Sprintf("%s, %s, load %.1f", text, m.FileSystem, m.Load)
}

// lookAround describes the machine, for a run that works in dir. What can't
// be learned stays empty: a report without it is still one.
func lookAround(dir string) Machine {
	m := Machine{CPUs: runtime.NumCPU(), Arch: runtime.GOARCH, FileSystem: "unknown file system"}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil {
		m.FileSystem = fsName(fs.Type)
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.Model = field(b, "model name")
		m.Hypervisor = strings.Contains(" "+field(b, "flags")+" ", " hypervisor ")
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = kilobytes(b, "MemTotal")
	}
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		m.System = osName(b)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load, _ = strconv.ParseFloat(first, 64) // 0 where it is none
	}
	return m
}

// field returns the value of the first "NAME : VALUE" in b, or "".
func field(b []byte, name string) string {
	for line := range bytes.Lines(b) {
		k, v, ok := strings.Cut(string(line), ":")
		if ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// kilobytes returns the bytes that "NAME: N kB" in b stands for; 0 for none.
func kilobytes(b []byte, name string) uint64 {
	digits, unit, _ := strings.Cut(field(b, name), " ")
	n, err := strconv.ParseUint(digits, 10, 53)
	if err != nil || unit != "kB" {
		return 0
	}
	return n << 10
}

// osName returns PRETTY_NAME of an os-release file.
func osName(b []byte) string {
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if v, ok := strings.CutPrefix(sc.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// fsName names the kinds of file systems that matter to what is measured.
func fsName(magic int64) string {
	switch magic {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("file system %#x", magic)
}
