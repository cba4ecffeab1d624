package sandbox

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of mounts.
const (
	MaxMounts = 32
	// maxMountDepth is how many names a mount's place in the workspace may have.
	maxMountDepth = 16
	maxPath       = 4095 // bytes
	maxEntry      = 255  // bytes of one name
)

// ownerRoot owns a directory of the sandbox's own that names no other owner.
const ownerRoot = "root"

// WorkspacePath is where the workspace is inside. Mounts may lie below it: the
// directory on which one lies is made where it is missing, and can be neither
// renamed nor replaced from inside, nor can those that lead to it.
const WorkspacePath = "/workspace"

// reserved are the paths inside that no mount may cover, lie in or lie under:
// the system's own, the agent's, and the links that lead to them.
var reserved = []string{
	"/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run/carboy",
	"/sbin", "/sys", "/usr", "/var/run",
}

// Places of the host that are never shared: closed ones neither as they are
// nor anything in them, whole ones only not as they are. Which other
// directories a caller may name is not decided here.
var (
	closedSources = []string{"/boot", "/dev", "/etc", "/proc", "/sys"}
	wholeSources  = []string{
		"/", "/bin", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/root", "/run", "/sbin", "/usr", "/var",
	}
)

// cleanTarget tidies an absolute path, and leaves another for checkMounts.
func cleanTarget(p string) string {
	if !strings.HasPrefix(p, "/") {
		return p
	}
	return path.Clean(p)
}

// within reports whether p is dir or lies in it. Both are clean and absolute.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

func (w Workspace) check(o Offer) *Error {
	given := w.Source != HostDir{}
	switch w.Mode {
	case WorkspacePrivate, WorkspaceVolume:
		if given {
			return Errorf(Invalid, "workspace: mode %s has no directory of the host", w.Mode).
				WithHint("leave the directory out, or choose cow, ro or rw")
		}
	case WorkspaceCOW, WorkspaceReadOnly, WorkspaceWritable:
		if !given {
			return Errorf(Invalid, "workspace: mode %s needs a directory of the host", w.Mode).
				WithHint("name a directory, or choose private")
		}
		if err := checkSource("workspace", w.Source); err != nil {
			return err
		}
	default:
		return Errorf(Invalid, "workspace mode %s: no such mode", refText(string(w.Mode))).
			WithHint("private, cow, ro, rw or volume")
	}
	switch {
	case w.Mode == WorkspaceVolume && w.Volume == "":
		return Errorf(Invalid, "workspace: mode volume needs a volume").WithHint("name one: carboy volume ls")
	case w.Mode == WorkspaceVolume:
		return checkVolume("workspace", w.Volume, w.VolumeName, o)
	case w.Volume != "" || w.VolumeName != "":
		return Errorf(Invalid, "workspace: mode %s has no volume", w.Mode).WithHint("leave the volume out, or choose volume")
	case w.ReadOnly:
		return Errorf(Invalid, "workspace: read_only is a volume's").WithHint("choose mode ro")
	}
	return nil
}

func checkMounts(mounts []Mount, o Offer) *Error {
	if len(mounts) > MaxMounts {
		return Errorf(Invalid, "mounts: %d are too many", len(mounts)).WithHint("at most %d", MaxMounts)
	}
	for i, m := range mounts {
		if err := checkTarget(m.Target); err != nil {
			return err
		}
		if err := m.checkOrigin(o); err != nil {
			return err
		}
		for _, other := range mounts[:i] {
			if within(m.Target, other.Target) || within(other.Target, m.Target) {
				return Errorf(Invalid, "mount %s: overlaps the mount %s", m.Target, other.Target).
					WithHint("give each mount a place of its own")
			}
		}
	}
	return nil
}

// checkOrigin wants one of a directory of the host, a volume, and a directory
// of the sandbox's own.
func (m Mount) checkOrigin(o Offer) *Error {
	what := "mount " + m.Target
	given := m.Source != HostDir{}
	switch {
	case m.Cache && m.Volume == "" || m.Slot < 0 || m.Slot > 0 && !m.Cache:
		return Errorf(Invalid, "%s: only a volume that is a cache has slots", what).WithHint("leave them out")
	case (m.Home != "" || m.Sub != "") && !(m.Cache && goodName(m.Home) && goodName(m.Sub)):
		return Errorf(Invalid, "%s: not a directory of a home", what).WithHint("a cache's, and a name for both")
	case m.Own && (given || m.Volume != "" || m.VolumeName != ""):
		return Errorf(Invalid, "%s: a directory of the sandbox's own is neither of the host nor a volume", what).
			WithHint("choose one of them")
	case m.Own && m.ReadOnly:
		return Errorf(Invalid, "%s: a directory of the sandbox's own that is read-only stays empty", what).
			WithHint("it belongs to root as it is: leave read_only out")
	case !slices.Contains([]string{"", ownerRoot, DefaultUser}, m.Owner), m.Owner != "" && !m.Own:
		return Errorf(Invalid, "%s: %s can't be its owner", what, refText(m.Owner)).
			WithHint("a directory of the sandbox's own belongs to %s or to %s", ownerRoot, DefaultUser)
	case m.Own:
		return nil
	case m.Volume == "" && m.VolumeName != "":
		return Errorf(Invalid, "%s: it is a volume's name without a volume", what).WithHint("name the volume's ID")
	case m.Volume == "":
		return checkSource(what, m.Source)
	case given:
		return Errorf(Invalid, "%s: it is both a directory of the host and a volume", what).
			WithHint("name one of them")
	}
	return checkVolume(what, m.Volume, m.VolumeName, o)
}

// goodName reports whether s can name a directory, and nothing above it.
func goodName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxEntry && !strings.Contains(s, "/") && printable(s)
}

func checkVolume(what, id, name string, o Offer) *Error {
	switch {
	case !o.Volumes:
		return Errorf(Unsupported, "%s: there are no volumes here", what).WithHint("leave it out")
	case !ValidVolumeID(id):
		return Errorf(Invalid, "%s: volume %s is not an ID", what, refText(id)).WithHint("carboy volume ls")
	case len(name) > maxVolumeName || !printable(name):
		return Errorf(Invalid, "%s: not a volume's name", what).WithHint("carboy volume ls")
	}
	return nil
}

func checkTarget(p string) *Error {
	if !goodPath(p) || !printable(p) {
		return Errorf(Invalid, "mount %s: not a place inside", refText(p)).
			WithHint("an absolute path of printable characters: /mnt/cache")
	}
	for _, r := range reserved {
		if within(p, r) || within(r, p) {
			return Errorf(Invalid, "mount %s: %s is the sandbox's own", p, r).
				WithHint("choose a place such as /mnt/cache")
		}
	}
	if rel, ok := strings.CutPrefix(p, WorkspacePath+"/"); ok && strings.Count(rel, "/") >= maxMountDepth {
		return Errorf(Invalid, "mount %s: too deep in the workspace", refText(p)).WithHint("at most %d names", maxMountDepth)
	}
	if within(WorkspacePath, p) {
		return Errorf(Invalid, "mount %s: it would cover the workspace", p).
			WithHint("choose a place such as /mnt/cache or %s/cache", WorkspacePath)
	}
	return nil
}

// checkSource refuses the host's own directories. It sees only the name under
// which the directory was accepted: what opened it saw to the rest.
func checkSource(what string, d HostDir) *Error {
	if !goodPath(d.Path) || d.Ino == 0 {
		return Errorf(Invalid, "%s: %s is not a resolved directory of the host", what, refText(d.Path)).
			WithHint("an absolute path without symlinks and control characters")
	}
	for _, c := range closedSources {
		if within(d.Path, c) {
			return Errorf(Denied, "%s: %s is never shared", what, c).WithHint("copy what is needed to another directory")
		}
	}
	for _, w := range wholeSources {
		if d.Path == w {
			return Errorf(Denied, "%s: %s is never shared whole", what, w).WithHint("name a directory in it")
		}
	}
	return nil
}

// goodPath reports whether p is absolute, clean, text and not too long.
func goodPath(p string) bool {
	return strings.HasPrefix(p, "/") && len(p) <= maxPath && path.Clean(p) == p &&
		utf8.ValidString(p) && !strings.ContainsFunc(p, unicode.IsControl)
}
