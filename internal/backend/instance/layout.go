package instance

import (
	"io"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// A Layout is all that is needed to build an instance's file system, resolved and
// decided. Paths are absolute on the host.
type Layout struct {
	ID     string   `json:"id"`
	Dir    string   `json:"dir"`    // the instance's own directory
	Lowers []string `json:"lowers"` // the image, the lowest layer first
	// Saved are the layers of the snapshots that it lies over, the lowest first:
	// in each there is a directory for each overlay that was written to.
	Saved   []string         `json:"saved"`
	Parts   []hostimage.Part `json:"parts"`    // host directories laid copy-on-write over it
	Masks   []string         `json:"masks"`    // directories of the parts that are covered
	Tools   []hostimage.Tool `json:"tools"`    // directories of the host seen at their own paths, read-only
	Disk    string           `json:"disk"`     // the image that holds what the instance writes; empty: a plain directory
	NewDisk bool             `json:"new_disk"` // Disk was made for this very start
	Holder  string           `json:"holder"`   // who holds what is written to Disk, as disk.Options has it
	Groups  Groups           `json:"groups"`   // of the instance

	Workspace Dir   `json:"workspace"`
	Mounts    []Dir `json:"mounts"`

	// Base is the host's id for the instance's root, the first of Span; 0: ids
	// inside are those outside.
	Base uint32 `json:"base"`
	// Native: the instance is on the host's kernel.
	Native bool         `json:"native"`
	Shown  []shownGroup `json:"shown"`
	// Rootless: the composing process is root of a user namespace in which
	// only the caller's ids are mapped.
	Rootless bool `json:"rootless"`
	// Linked: the instance is in a network namespace that was made for it, and that
	// its launcher was given.
	Linked bool `json:"linked"`
	// Resume: the instance goes on from DirMemoryUsed.
	Resume bool `json:"resume"`
	// Instead says how /workspace was made where that is not as the report has
	// it.
	Instead string `json:"instead"`
	// Copied is told how far the copy of a workspace is, in the process that makes it;
	// nil: nobody is.
	Copied func(sandbox.Copied) `json:"-"`
}

// TellCopied has the progress of p's copy told to the daemon, over what a launcher
// answers by.
func (p *Layout) TellCopied(out io.Writer) {
	p.Copied = func(c sandbox.Copied) {
		_ = role.TellNews(out, c) // the daemon that is gone ends the launcher
	}
}

// Shared lists the places inside that others can see and commands can write to:
// volumes and directories of the host.
func (lay *Layout) Shared() (at []string) {
	for _, d := range append([]Dir{lay.Workspace}, lay.Mounts...) {
		if d.Mode == modeRW {
			at = append(at, d.Target)
		}
	}
	return at
}

// Locked lists the places inside whose files' locks are the host's too: those of Shared. Where
// commands can only read they hold inside alone, for one that held on the host would keep
// those waiting who can write.
func (lay *Layout) Locked() (at []string) {
	if weak.On(weak.LocksInside) {
		return nil
	}
	at = lay.Shared()
	if weak.On(weak.LocksOfReaders) {
		for _, d := range append([]Dir{lay.Workspace}, lay.Mounts...) {
			if d.Mode == modeRO {
				at = append(at, d.Target)
			}
		}
	}
	return at
}

// Groups is how a process gets into an instance's control groups.
type Groups struct {
	Procs    []string         `json:"procs"`    // files to write one's pid into
	Commands *cgroup.Commands `json:"commands"` // the commands' part; nil: they have none of their own
}

// shownGroup is a file or directory of the host's control groups that a native
// instance's agent sees in GuestControl, and its commands don't.
type shownGroup struct {
	Source string `json:"source"`
	Name   string `json:"name"`
}

// Dir is a directory to be seen inside: of the host, of a volume, or the instance's
// own.
type Dir struct {
	Mode   string `json:"mode"` // one of the modes
	Source string `json:"source"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	UID    uint32 `json:"uid"` // of modeOwn: whose it is inside
	GID    uint32 `json:"gid"`
	Target string `json:"target"`
	// Volume is what is seen in place of Source; nil: a directory of the host.
	Volume *tree.Tree `json:"volume,omitempty"`
	// Protect lists paths below Source that stay read-only under rw.
	Protect []workspace.Protect `json:"protect"`
}

// The modes of a Dir.
const (
	modePrivate = "private" // of the workspace: the instance's own
	modeCOW     = "cow"     // of the workspace: a view of Source
	modeRO      = "ro"
	modeRW      = "rw"
	modeOwn     = "own" // of a mount: a directory of the instance's own disk
)

// Span is how many ids an instance has, from Layout.Base on.
const Span = 1 << 16

// Names below an instance's directory.
const (
	DirMounts    = "m"      // mount points; empty but in the instance's own namespace
	DirBundle    = "bundle" // a wall's own description of the instance
	DirState     = "runsc"  // a wall's own state while the instance runs
	dirOwn       = "own"    // on its disk: directories that are mounted
	dirLayers    = "layers" // what the instance writes, where there is no disk image
	fileDisk     = "disk.img"
	fileGrown    = "disk.grown" // fileDisk in the making, larger
	fileInstance = "box.json"
	// fileGrownNote says what fileDisk has since it was grown.
	fileGrownNote = "disk.json"
	fileSince     = "since" // its modification time is when the workspace was made

	fileSocket = "agent.sock" // where the guest agent is reached: see package control
	fileKey    = "agent.key"  // by which it is known

	// FileAgent names the agent's binary.
	FileAgent = "carboy-guest"
	// MountRoot is the instance's root below DirMounts, once it is composed.
	MountRoot = "root"
	// MountGroups is what a native instance's agent gets of its control groups, beside
	// MountRoot.
	MountGroups = "groups"
	// GuestControl is where a native instance's agent sees its control groups.
	GuestControl = "/run/carboy"
)
