package profile

import (
	"math"
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// MaxQuotaMB is the largest quota of a workspace: 1 PiB.
const MaxQuotaMB = 1 << 30

// Bounds that the original leaves open, so that no product of them overflows.
const (
	maxSessionID = 1024 // bytes
	maxPathBytes = 4095
	maxTimeout   = math.MaxInt32 // seconds
	maxCPUs      = 1 << 16
	maxMemoryMB  = 1 << 24 // 16 TiB
	maxPIDs      = 1 << 22 // as many as Linux has
	maxInodes    = 1 << 32
	maxMounts    = 1000
	maxSkillName = 64 // characters
)

// Validate reports the first thing about a Spec that could not be honoured. An
// empty Cmd passes: a session is made without one. Whether a directory of the
// host may be named is decided by Roots.
func Validate(s sessions.Spec) error {
	for _, err := range []*sandbox.Error{
		inside("workdir", s.Workdir),
		within("timeout_sec", "must be greater than 0", s.TimeoutSec, 1, maxTimeout),
		CheckSessionID(s.SessionID),
		checkEnv(s.Env),
		checkImage(s.Image),
		onHost("host_path", s.HostPath, true),
		inside("mount_path", s.MountPath),
		checkMounts(s.ExtraMounts),
		checkSkillName(s.SkillName),
		checkCPUs(s.CPUs),
		within("memory_mb", "must be at least 32", s.MemoryMB, sessions.MinMemoryMB, maxMemoryMB),
		within("pids_limit", "must be at least 1", s.PIDsLimit, 1, maxPIDs),
		within("workspace_quota_mb", "must be greater than or equal to 0", s.WorkspaceQuotaMB, 0, MaxQuotaMB),
		within("workspace_inodes", "must be greater than or equal to 0", s.WorkspaceInodes, 0, maxInodes),
		checkWords(s),
		checkWorkdir(s),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// within checks a whole number; low says what is wanted of one that is less.
func within[N int | int64](field, low string, n N, least, most int64) *sandbox.Error {
	switch {
	case int64(n) < least:
		return Invalid("%s %s", field, low)
	case int64(n) > most:
		return Invalid("%s must be at most %d", field, most)
	}
	return nil
}

func checkCPUs(n float64) *sandbox.Error {
	switch {
	case !(n > 0):
		return Invalid("cpus must be greater than 0")
	case n > maxCPUs:
		return Invalid("cpus must be at most %d", maxCPUs)
	}
	return nil
}

// CheckSessionID reports what keeps a text from being a session's ID. One with
// U+FFFD is refused: decoders put it in the place of whatever is no character,
// so that several of a host's IDs would be the same here.
func CheckSessionID(id string) *sandbox.Error {
	switch {
	case id == "":
		return Invalid("session_id must not be empty")
	case len(id) > maxSessionID:
		return Invalid("session_id must be at most %d bytes", maxSessionID)
	case strings.ContainsFunc(id, unicode.IsControl):
		return Invalid("session_id must not have control characters")
	case strings.ContainsRune(id, unicode.ReplacementChar):
		return Invalid("session_id %q has what is no character, such as half of a surrogate pair", cut(id))
	}
	return nil
}

func checkEnv(env map[string]string) *sandbox.Error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return Invalid("env: %s is not the name of a variable", show(k))
		}
		if strings.ContainsRune(v, 0) {
			return Invalid("env: the value of %s has a NUL", show(k))
		}
	}
	return nil
}

func checkImage(name string) *sandbox.Error {
	if strings.ContainsFunc(name, unicode.IsControl) || len(name) > maxPathBytes {
		return Invalid("image: %s is not a name", show(name))
	}
	return nil
}

// inside checks a place in the sandbox.
func inside(field, p string) *sandbox.Error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return Invalid("%s must be an absolute path inside the sandbox, not %q", field, cut(p))
	case strings.ContainsRune(p, 0) || len(p) > maxPathBytes:
		return Invalid("%s: not a usable path", field)
	}
	return nil
}

// onHost checks the form of a directory of the host.
func onHost(field, p string, optional bool) *sandbox.Error {
	switch {
	case p == "" && optional:
		return nil
	case !absoluteOnHost(p):
		return Invalid("%s must be an absolute host path, not %q", field, cut(p))
	case strings.ContainsRune(p, 0) || len(p) > maxPathBytes:
		return Invalid("%s: not a usable path", field)
	}
	return nil
}

// absoluteOnHost reports whether p is absolute by the rules of POSIX, or of
// Windows, where a client may run.
func absoluteOnHost(p string) bool {
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

func checkMounts(mounts []sessions.Mount) *sandbox.Error {
	if len(mounts) > maxMounts {
		return Invalid("extra_mounts: at most %d", maxMounts)
	}
	for _, m := range mounts {
		if err := onHost("extra_mounts: host_path", m.HostPath, false); err != nil {
			return err
		}
		if err := inside("extra_mounts: mount_path", m.MountPath); err != nil {
			return err
		}
		switch m.Mode {
		case sessions.MountNone, sessions.MountReadOnly, sessions.MountWritable:
		default:
			return Invalid("extra_mounts: mode %s: none, ro or rw is wanted", show(m.Mode))
		}
	}
	return nil
}

func checkSkillName(name string) *sandbox.Error {
	if name != "" && !ValidSkillName(name) {
		return Invalid("skill_name can only contain up to 64 letters, numbers, hyphens and underscores")
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

// checkWords checks the fields that have a few words to choose from.
func checkWords(s sessions.Spec) *sandbox.Error {
	for _, f := range []struct {
		name, value string
		values      []string
	}{
		{"network", s.Network, []string{sessions.NetworkOff, sessions.NetworkOn}},
		{"host_path_mode", s.HostPathMode, []string{sessions.MountNone, sessions.MountReadOnly, sessions.MountWritable}},
		{"on_timeout", s.OnTimeout, []string{"", sessions.OnTimeoutKeep, sessions.OnTimeoutReset}},
		{"quota", s.Quota, []string{sessions.QuotaAny, sessions.QuotaHard, sessions.QuotaSoft}},
	} {
		var got string
		if err := oneOf(&got, f.value, f.values...); err != nil {
			return Invalid("%s: %v", f.name, err)
		}
	}
	if s.Isolation != "" && !goodName(s.Isolation) {
		return Invalid("isolation: %s is not the name of a wall", show(s.Isolation))
	}
	return nil
}

// checkWorkdir wants the command to begin in a directory of the host that it is
// given. It is about what was written, as in the original: where the path leads
// is decided inside.
func checkWorkdir(s sessions.Spec) *sandbox.Error {
	if s.HostPath == "" || s.HostPathMode == sessions.MountNone {
		return nil
	}
	if s.Workdir == s.MountPath || strings.HasPrefix(s.Workdir, s.MountPath+"/") {
		return nil
	}
	return Invalid("workdir must stay under mount_path when host_path is provided: %q is not in %q",
		cut(s.Workdir), cut(s.MountPath))
}
