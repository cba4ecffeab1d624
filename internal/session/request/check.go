package request

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// Bounds, so that no product of them overflows.
const (
	MaxTimeout = math.MaxInt32 * time.Second
	MaxMemory  = 1 << 44 // 16 TiB
	MaxQuota   = 1 << 50 // 1 PiB
	MinMemory  = 32 << 20

	maxKey       = 1024 // bytes
	maxPathBytes = 4095
	maxCPUs      = 1 << 16
	maxPIDs      = 1 << 22 // as many as Linux has
	maxInodes    = 1 << 32
	maxMounts    = 1000
	maxSkillName = 64 // characters
)

// MaxLine is the longest command, in bytes.
const MaxLine = 8 << 20

// Check reports the first thing about a session that could not be honoured.
// Whether a directory of the host may be named is decided by its roots.
func Check(s Session) error { return first(s.checks()) }

// CheckIn is Check for a session that c is to run in. An empty Line passes: see
// CheckLine.
func CheckIn(s Session, c Command) error {
	return first(slices.Concat([]*sandbox.Error{
		inside("workdir", c.Dir),
		checkTimeout(c.Timeout),
		checkEnv(c.Env),
	}, s.checks(), []*sandbox.Error{checkDir(s, c)}))
}

// first is the first that is one.
func first(list []*sandbox.Error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s Session) checks() []*sandbox.Error {
	return []*sandbox.Error{
		CheckKey(s.Key),
		checkImage(s.Image),
		onHost("host_path", s.Workspace.HostPath, true),
		inside("mount_path", s.Workspace.Target),
		checkMounts(s.Mounts),
		checkSkillName(s.Skill),
		checkCPUs(s.CPUs),
		within("memory_mb", "must be at least 32", s.Memory>>20, MinMemory>>20, MaxMemory>>20),
		within("pids_limit", "must be at least 1", s.PIDs, 1, maxPIDs),
		within("workspace_quota_mb", "must be greater than or equal to 0", s.Workspace.Size>>20, 0, MaxQuota>>20),
		within("workspace_inodes", "must be greater than or equal to 0", s.Workspace.Inodes, 0, maxInodes),
		oneOf("network", s.Network, sandbox.NetworkOff, sandbox.NetworkOn),
		oneOf("host_path_mode", s.Workspace.Mode, NotMounted, ReadOnly, Writable),
		oneOf("quota", s.Workspace.Quota, QuotaAny, QuotaHard, QuotaSoft),
		checkWall(s.Isolation),
	}
}

func checkTimeout(d time.Duration) *sandbox.Error {
	switch {
	case d <= 0:
		return fault.Invalid("timeout_sec must be greater than 0")
	case d > MaxTimeout:
		return fault.Invalid("timeout_sec must be at most %d", MaxTimeout/time.Second)
	}
	return nil
}

// oneOf checks a field that has a few words to choose from.
func oneOf(field, value string, values ...string) *sandbox.Error {
	if slices.Contains(values, value) {
		return nil
	}
	last := len(values) - 1
	return fault.Invalid("%s: %s or %s is wanted, not %q", field, strings.Join(values[:last], ", "), values[last], fault.Cut(value))
}

func checkWall(name string) *sandbox.Error {
	if name != "" && (len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})) {
		return fault.Invalid("isolation: %s is not the name of a wall", fault.Show(name))
	}
	return nil
}

// checkDir wants a command to begin in a directory of the host that it is given.
// It is about what was written: where the path leads is decided inside.
func checkDir(s Session, c Command) *sandbox.Error {
	at := s.Workspace.Target
	if !s.Workspace.OfHost() || c.Dir == at || strings.HasPrefix(c.Dir, at+"/") {
		return nil
	}
	return fault.Invalid("workdir must stay under mount_path when host_path is provided: %q is not in %q", fault.Cut(c.Dir), fault.Cut(at))
}

// CheckLine wants a command to have a line that can be run.
func CheckLine(line string) error {
	switch {
	case Trim(line) == "":
		return fault.Invalid("cmd must not be empty")
	case strings.ContainsRune(line, 0):
		return fault.Invalid("cmd: it has a NUL")
	case len(line) > MaxLine:
		return fault.Invalid("cmd: %d bytes are too many", len(line)).WithHint("at most %d: put it into a file", MaxLine)
	}
	return nil
}

// Trim takes blanks from both ends, the separators of ASCII too.
func Trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}

// within checks a whole number; low says what is wanted of one that is less.
func within[N int | int64](field, low string, n N, least, most int64) *sandbox.Error {
	switch {
	case int64(n) < least:
		return fault.Invalid("%s %s", field, low)
	case int64(n) > most:
		return fault.Invalid("%s must be at most %d", field, most)
	}
	return nil
}

func checkCPUs(n float64) *sandbox.Error {
	switch {
	case !(n > 0):
		return fault.Invalid("cpus must be greater than 0")
	case n > maxCPUs:
		return fault.Invalid("cpus must be at most %d", maxCPUs)
	}
	return nil
}

// CheckKey reports what keeps a text from being a session's key. One with
// U+FFFD is refused: decoders put it in the place of whatever is no character,
// so that several of a client's keys would be the same here.
func CheckKey(id string) *sandbox.Error {
	switch {
	case id == "":
		return fault.Invalid("session_id must not be empty")
	case len(id) > maxKey:
		return fault.Invalid("session_id must be at most %d bytes", maxKey)
	case !utf8.ValidString(id):
		return fault.Invalid("session_id must be text in UTF-8")
	case strings.ContainsFunc(id, unicode.IsControl):
		return fault.Invalid("session_id must not have control characters")
	case strings.ContainsRune(id, unicode.ReplacementChar):
		return fault.Invalid("session_id %q has what is no character, such as half of a surrogate pair", fault.Cut(id))
	}
	return nil
}

func checkEnv(env map[string]string) *sandbox.Error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fault.Invalid("env: %s is not the name of a variable", fault.Show(k))
		}
		if strings.ContainsRune(v, 0) {
			return fault.Invalid("env: the value of %s has a NUL", fault.Show(k))
		}
	}
	return nil
}

func checkImage(name string) *sandbox.Error {
	if strings.ContainsFunc(name, unicode.IsControl) || len(name) > maxPathBytes {
		return fault.Invalid("image: %s is not a name", fault.Show(name))
	}
	return nil
}

// inside checks a place in the sandbox.
func inside(field, p string) *sandbox.Error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return fault.Invalid("%s must be an absolute path inside the sandbox, not %q", field, fault.Cut(p))
	case strings.ContainsRune(p, 0) || len(p) > maxPathBytes:
		return fault.Invalid("%s: not a usable path", field)
	}
	return nil
}

// onHost checks the form of a directory of the host.
func onHost(field, p string, optional bool) *sandbox.Error {
	switch {
	case p == "" && optional:
		return nil
	case !AbsoluteOnHost(p):
		return fault.Invalid("%s must be an absolute host path, not %q", field, fault.Cut(p))
	case strings.ContainsRune(p, 0) || len(p) > maxPathBytes:
		return fault.Invalid("%s: not a usable path", field)
	}
	return nil
}

// AbsoluteOnHost reports whether p is absolute by the rules of POSIX, or of
// Windows, where a client may run.
func AbsoluteOnHost(p string) bool {
	if strings.HasPrefix(p, "/") || strings.HasPrefix(p, `\`) {
		return true
	}
	for i, r := range p {
		if i == 0 {
			continue
		}
		rest := p[i:]
		return r == ':' && len(rest) > 1 && (rest[1] == '\\' || rest[1] == '/')
	}
	return false
}

func checkMounts(mounts []Mount) *sandbox.Error {
	if len(mounts) > maxMounts {
		return fault.Invalid("extra_mounts: at most %d", maxMounts)
	}
	for _, m := range mounts {
		if err := onHost("extra_mounts: host_path", m.HostPath, false); err != nil {
			return err
		}
		if err := inside("extra_mounts: mount_path", m.Target); err != nil {
			return err
		}
		switch m.Mode {
		case NotMounted, ReadOnly, Writable:
		default:
			return fault.Invalid("extra_mounts: mode %s: none, ro or rw is wanted", fault.Show(m.Mode))
		}
	}
	return nil
}

func checkSkillName(name string) *sandbox.Error {
	if name != "" && !ValidSkillName(name) {
		return fault.Invalid("skill_name can only contain up to 64 letters, numbers, hyphens and underscores")
	}
	return nil
}

// ValidSkillName reports whether name is 1 to 64 letters and digits, of any
// script, with - and _ among them.
func ValidSkillName(name string) bool {
	n, solid := 0, false
	for _, r := range name {
		n++
		switch {
		case unicode.IsLetter(r) || unicode.IsNumber(r):
			solid = true
		case r != '-' && r != '_':
			return false
		}
	}
	return solid && n <= maxSkillName
}
