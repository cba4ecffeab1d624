// Package request is what a session and a command are asked for by: values, the
// checks of them, and the rule by which a request fits a session that is there.
// Each platform's dialect makes them of its own words. The package decides
// nothing about a machine, and knows no profile, default or wire.
//
// The texts of its errors name fields as the API of sessions does.
package request

import (
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// How a directory of the host is seen.
const (
	NotMounted = "none"
	ReadOnly   = "ro"
	Writable   = "rw"
)

// How a workspace's quota is to hold.
const (
	QuotaAny  = ""     // hard where it can be, else soft
	QuotaHard = "hard" // by the file system; refused where it can't be
	QuotaSoft = "soft" // by looking
)

// Session is what a session is to be: of a sandbox's spec the part that a
// session has a say in, and what is a session's alone. Its JSON is what a record
// keeps.
type Session struct {
	Key          string  `json:"-"`                   // as its owner calls it; a record has it beside
	Image        string  `json:"image,omitempty"`     // "": as configured
	Isolation    string  `json:"isolation,omitempty"` // a wall; "": as configured
	Network      string  `json:"network"`             // sandbox.NetworkOff or sandbox.NetworkOn
	ReadOnlyRoot bool    `json:"read_only_root,omitempty"`
	CPUs         float64 `json:"cpus"`
	Memory       int64   `json:"memory"` // bytes
	PIDs         int64   `json:"pids"`

	Workspace Workspace `json:"workspace"`
	Mounts    []Mount   `json:"mounts,omitempty"` // further directories, and packages of skills
	// Skill is a further package of the owner's, by its name, which is looked up
	// with each request and is no lasting part of a session.
	Skill string `json:"-"`
	// Floor is the caller's, for what is started for it.
	Floor sandbox.Floor `json:"-"`
	// Persistent says that the session is never idle.
	Persistent bool `json:"persistent,omitempty"`
}

// Workspace is where a session's files are.
type Workspace struct {
	HostPath string `json:"host_path,omitempty"` // a directory of the host; "": the session's own
	Mode     string `json:"mode"`                // NotMounted: the session's own, whatever HostPath is
	Target   string `json:"target"`              // where it is seen
	Size     int64  `json:"size,omitempty"`      // quota in bytes; 0: none
	Inodes   int64  `json:"inodes,omitempty"`    // files; 0: as many as its size has room for
	Quota    string `json:"quota,omitempty"`
}

// OfHost reports whether a directory of the host is asked for.
func (w Workspace) OfHost() bool { return w.HostPath != "" && w.Mode != NotMounted }

// Mount is one further directory.
type Mount struct {
	HostPath string `json:"host_path"`
	Target   string `json:"target"`
	Mode     string `json:"mode"`
}

// Lasting is s without what is of one request alone. It shares nothing that is
// changed in place.
func (s Session) Lasting() Session {
	s.Skill, s.Floor = "", sandbox.Floor{}
	s.Mounts = slices.Clone(s.Mounts)
	return s
}

// Command is what is run in a session.
type Command struct {
	Line    string // for a shell
	Dir     string
	Env     map[string]string // of the command alone
	Timeout time.Duration
	// Reset says that the session ends with a command whose time is up. Otherwise
	// the command ends, with all that it started.
	Reset bool
}
