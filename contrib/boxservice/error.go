package boxservice

import (
	"strings"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

// Error is an error whose text is fit to show: errors.As finds it in every
// error of this package. Its Hint says what to do next.
type Error = sandbox.Error

// ConflictError says in what a request differs from the session of its key.
// errors.As finds it; Fields are empty where the runtime is a remote one, whose
// message has them.
type ConflictError = fault.ConflictError

// What went wrong, for errors.Is.
var (
	ErrNotFound        = fault.ErrNotFound        // no such session
	ErrProcessNotFound = fault.ErrProcessNotFound // no such managed process
	ErrProcessConflict = fault.ErrProcessConflict // the process does not run
	ErrCapacity        = fault.ErrCapacity        // a limit of the runtime
	ErrBackend         = fault.ErrBackend         // no wall is available
	ErrAdmission       = profile.ErrAdmission     // no grant
	ErrReadiness       = profile.ErrReadiness     // the isolation is not ready
	// ErrUnavailable is for where no runtime is connected, or where a connection
	// broke: what was asked for may have been done then.
	ErrUnavailable = profile.ErrRuntime
)

// Class returns the class of an error, by which LangBot's Box names it:
// "BoxSessionNotFoundError". It is "" for nil.
func Class(err error) string { return profile.Class(err) }

// classes are those that a message may begin with.
var classes = []string{
	langbot.ClassValidation, langbot.ClassSessionNotFound, langbot.ClassSessionConflict,
	langbot.ClassProcessNotFound, langbot.ClassProcessConflict, langbot.ClassBackendUnavailable, langbot.ClassRuntimeUnavailable,
	langbot.ClassAdmission, langbot.ClassReadiness, langbot.ClassCapacity, langbot.ClassError,
}

// fromMessage is the error that a runtime answered a call with: a class, ": "
// and a text. A class within the text counts where none is before it, as a
// runtime may wrap what another one said.
func fromMessage(m string) error {
	for _, class := range classes {
		if text, ok := strings.CutPrefix(m, class+": "); ok {
			return fromClass(class, text)
		}
	}
	for _, class := range classes {
		if strings.Contains(m, class+":") {
			return fromClass(class, m)
		}
	}
	return fromClass(langbot.ClassError, m)
}

func fromClass(class, text string) error { return profile.FromClass(class, text) }

// Tools returns the native tools as a model is told of them: name, description,
// and a JSON Schema of the parameters. What a model says for "exec" is what
// Service.ExecuteTool takes; the others are the daemon's, by the API
// (client.SessionRead and those beside it).
func Tools() []ToolSpec { return toolspec.Tools() }

// Guidance returns what to tell a model of its tools besides; with the ID of a
// query also where files for the user go, which client.Collect takes from there.
func Guidance(queryID string) (string, error) { return toolspec.Guidance("", queryID) }

// What a runtime is asked for and answers with. The fields, their defaults and
// what is refused of them stand where they are declared.
type (
	Spec          = sessions.Spec
	Mount         = sessions.Mount
	Profile       = sessions.Profile
	Adjustment    = sessions.Adjustment
	Result        = sessions.Result
	ToolResult    = sessions.ToolResult
	SessionInfo   = sessions.SessionInfo
	Difference    = sessions.Difference
	ProcessSpec   = sessions.ProcessSpec
	ProcessInfo   = sessions.ProcessInfo
	Backend       = sessions.Backend
	RuntimeStatus = sessions.RuntimeStatus
	Status        = sessions.Status
	ErrorRecord   = sessions.ErrorRecord
	ToolSpec      = tools.ToolSpec
	Skill         = sessions.Skill
	SkillInput    = sessions.SkillInput
	SkillWritten  = sessions.SkillWritten
	SkillFiles    = sessions.SkillFiles
	SkillContent  = sessions.SkillContent
	Grant         = langbot.Grant
	Revocation    = langbot.Revocation
	// Context says for whom a call is, where one client serves several
	// workspaces.
	Context = langbot.Context
)
