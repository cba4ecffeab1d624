package sandbox

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of mounts.
const (
	MaxMounts = 32
	maxPath   = 4095 // bytes
)

// reserved are the places inside that no mount may cover, lie in or lie
// under: the system's own, the agent's, and the links that lead to them.
var reserved = []string{
	"/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run/carboy",
	"/sbin", "/sys", "/usr", "/var/run", "/workspace",
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

func (s Spec) checkWorkspace() *Error {
	w := s.Workspace
	given := w.Source != HostDir{}
	switch w.Mode {
	case WorkspacePrivate:
		if given {
			return Errorf(Invalid, "workspace: a private one has no directory of the host").
				WithHint("leave the directory out, or choose cow, ro or rw")
		}
		return nil
	case WorkspaceCOW, WorkspaceReadOnly, WorkspaceWritable:
		if !given {
			return Errorf(Invalid, "workspace: mode %s needs a directory of the host", w.Mode).
				WithHint("name a directory, or choose private")
		}
		return checkSource("workspace", w.Source)
	default:
		return Errorf(Invalid, "workspace mode %s: no such mode", refText(string(w.Mode))).
			WithHint("private, cow, ro or rw")
	}
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

// checkOrigin wants either a directory of the host or a volume.
func (m Mount) checkOrigin(o Offer) *Error {
	switch {
	case m.Volume == "" && m.VolumeName != "":
		return Errorf(Invalid, "mount %s: it is a volume's name without a volume", m.Target).WithHint("name the volume's ID")
	case m.Volume == "":
		return checkSource("mount "+m.Target, m.Source)
	case m.Source != HostDir{}:
		return Errorf(Invalid, "mount %s: it is both a directory of the host and a volume", m.Target).
			WithHint("name one of them")
	case !o.Volumes:
		return Errorf(Unsupported, "mount %s: there are no volumes here", m.Target).WithHint("leave it out")
	case !ValidVolumeID(m.Volume):
		return Errorf(Invalid, "mount %s: volume %s is not an ID", m.Target, refText(m.Volume)).WithHint("carboy volume ls")
	case len(m.VolumeName) > maxVolumeName || !printable(m.VolumeName):
		return Errorf(Invalid, "mount %s: not a volume's name", m.Target).WithHint("carboy volume ls")
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
	return nil
}

// checkSource refuses the host's own directories. It sees only the name under
// which the directory was accepted: whoever opened it saw to the rest.
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
