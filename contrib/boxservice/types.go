package boxservice

import (
	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
)

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
