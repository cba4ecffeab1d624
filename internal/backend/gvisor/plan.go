package gvisor

import (
	"github.com/carboy-sandbox/carboy/internal/hostimage"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// A plan is what the daemon hands to a launcher: all that it needs to build
// and boot one box, resolved and decided. Paths are absolute on the host.
type plan struct {
	ID     string           `json:"id"`
	Dir    string           `json:"dir"`    // the box's own directory
	Agent  string           `json:"agent"`  // the guest agent's binary
	Root   string           `json:"root"`   // the image's skeleton
	Parts  []hostimage.Part `json:"parts"`  // host directories laid copy-on-write over the skeleton
	Masks  []string         `json:"masks"`  // directories of the parts that are covered
	Disk   string           `json:"disk"`   // the image that holds what the box writes; empty: a plain directory
	Cgroup []string         `json:"cgroup"` // files to write one's pid into

	Memory int64   `json:"memory"` // bytes that the guest sees
	CPUs   float64 `json:"cpus"`

	Workspace planDir   `json:"workspace"`
	Mounts    []planDir `json:"mounts"`

	// Rootless: the launcher runs as root of a user namespace in which only
	// the caller's ids are mapped.
	Rootless bool `json:"rootless"`
	// LogDir receives gVisor's debug logs where it is set.
	LogDir string `json:"log_dir"`
}

// planDir is a directory of the host to be seen inside.
type planDir struct {
	Mode   string `json:"mode"` // private, cow, ro, rw
	Source string `json:"source"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	Target string `json:"target"`
	// Protect lists paths below Source that stay read-only under rw.
	Protect []workspace.Protect `json:"protect"`
}

// launched is what a launcher answers.
type launched struct {
	Sentry int  `json:"sentry"` // pids on the host
	Gofer  int  `json:"gofer"`
	Copied bool `json:"copied"` // the workspace is a copy, not a view
}

// Names below a box's directory.
const (
	dirControl = "ctl"    // the guest agent's socket and configuration, /run/carboy inside
	dirMounts  = "m"      // mount points; empty but in the launcher's namespace
	dirBundle  = "bundle" // gVisor's config.json
	dirRunsc   = "runsc"  // gVisor's own state
	dirLayers  = "layers" // what the box writes, where there is no disk image
	fileDisk   = "disk.img"
	fileBox    = "box.json"
	fileSince  = "since" // its modification time is when the workspace was made

	fileSocket = "agent.sock"
	fileConfig = "config.json"
	fileAgent  = "carboy-guest"

	guestControl = "/run/carboy"
)
