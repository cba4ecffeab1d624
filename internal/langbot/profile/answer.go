package profile

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/request"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// ToolResult cuts what a command wrote to limit characters of each stream, or,
// where that is less than none, leaves all of it. What the runtime did not keep,
// which is what comes after kept bytes, counts as cut.
func ToolResult(r sessions.Result, limit int, kept int64) sessions.ToolResult {
	t := sessions.ToolResult{
		SessionID: r.SessionID, Backend: r.BackendName, Status: r.Status,
		OK:       r.Status == sessions.StatusCompleted && r.ExitCode != nil && *r.ExitCode == 0,
		ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr,
		DurationMS: r.DurationMS, QueuedMS: r.QueuedMS,
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		Limits: r.Limits, Notices: r.Notices, Adjusted: r.Adjusted,
	}
	if limit < 0 {
		t.StdoutRaw, t.StderrRaw = r.StdoutRaw, r.StderrRaw
	} else {
		t.Stdout, t.StdoutTruncated = shown(r.Stdout, limit, r.StdoutLeftOut)
		t.Stderr, t.StderrTruncated = shown(r.Stderr, limit, r.StderrLeftOut)
	}
	t.StdoutTruncated = t.StdoutTruncated || r.StdoutBytes > kept
	t.StderrTruncated = t.StderrTruncated || r.StderrBytes > kept
	return t
}

// shown is Truncate of a text in whose middle so many bytes are left out already: where the note of
// that is cut out, they count with what is, as far as a byte is a character.
func shown(text string, limit int, leftOut int64) (string, bool) {
	got, cut := Truncate(text, limit)
	if note := excerpt.Note(leftOut); leftOut > 0 && cut && !strings.Contains(got, note) {
		return truncate(text, limit, int(leftOut)-len(note))
	}
	return got, cut
}

const maxErrorText = 4096 // bytes of a message

// ErrorRecord is what is remembered of an error.
func ErrorRecord(at time.Time, err error, session string) sessions.ErrorRecord {
	message := err.Error()
	if len(message) > maxErrorText {
		message = message[:maxErrorText]
	}
	return sessions.ErrorRecord{Timestamp: at.UTC(), Type: Class(err), Message: term.Repair([]byte(message)), SessionID: session}
}

// BackendError says what keeps a wall from being used; "": nothing.
func BackendError(b sessions.Backend) string {
	why := ""
	if b.Reason != "" {
		why = ": " + b.Reason
	}
	switch {
	case b.Available:
		return ""
	case b.Name != nil && *b.Name != "":
		return fmt.Sprintf("Configured sandbox backend %q is unavailable%s", *b.Name, why)
	}
	return "No supported sandbox backend is available" + why
}

// SkillMounts are the mounts of packages, below tools.SkillsPath. A skill
// without a directory is none. Where the directories are this machine's, one
// whose directory is missing is left out with a warning; elsewhere the runtime's
// word is taken for it.
func SkillMounts(skills []sessions.Skill, here bool, log *slog.Logger) []sessions.Mount {
	list := []sessions.Mount{}
	for _, skill := range skills {
		root := strings.TrimSpace(skill.PackageRoot)
		switch {
		case root == "":
			continue
		case !request.ValidSkillName(skill.Name):
			log.Warn("skill: not a name, so it is not mounted", "skill", skill.Name)
			continue
		case here && !isDir(root):
			log.Warn("skill: package_root missing, so it is not mounted; the list of skills may be stale",
				"skill", skill.Name, "package_root", root)
			continue
		}
		list = append(list, sessions.Mount{HostPath: root, MountPath: tools.SkillsPath + "/" + skill.Name, Mode: sessions.MountWritable})
	}
	return list
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// CheckHostPath wants a workspace to be allowed. The default one is made.
func CheckHostPath(roots *hostroot.Roots, path string) error {
	if path == roots.DefaultWorkspace() {
		if err := roots.MakeDefault(); err != nil {
			return err
		}
	}
	return roots.Check(path)
}

// CheckMounts wants all that is mounted to be allowed, or to be a skill; nil:
// they were not listed yet, and list does.
func CheckMounts(roots *hostroot.Roots, mounts, skills []sessions.Mount, list func() []sessions.Mount) error {
	for _, m := range mounts {
		if m.Mode == sessions.MountNone {
			continue
		}
		if skills == nil && strings.HasPrefix(m.MountPath, tools.SkillsPath+"/") {
			skills = list()
		}
		if slices.Contains(skills, m) {
			continue
		}
		if err := roots.Check(m.HostPath); err != nil {
			return err
		}
	}
	return nil
}
