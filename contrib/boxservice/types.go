package boxservice

import (
	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/tools"
)

// What a runtime is asked for and answers with. The fields, their defaults and
// what is refused of them stand where they are declared.
type (
	Spec          = langbot.Spec
	Mount         = langbot.Mount
	Profile       = langbot.Profile
	Adjustment    = langbot.Adjustment
	Result        = langbot.Result
	ToolResult    = langbot.ToolResult
	SessionInfo   = langbot.SessionInfo
	Difference    = langbot.Difference
	ProcessSpec   = langbot.ProcessSpec
	ProcessInfo   = langbot.ProcessInfo
	Backend       = langbot.Backend
	RuntimeStatus = langbot.RuntimeStatus
	Status        = langbot.Status
	ErrorRecord   = langbot.ErrorRecord
	ToolSpec      = tools.ToolSpec
	Skill         = langbot.Skill
	SkillInput    = langbot.SkillInput
	SkillWritten  = langbot.SkillWritten
	SkillFiles    = langbot.SkillFiles
	SkillContent  = langbot.SkillContent
	Grant         = langbot.Grant
	Revocation    = langbot.Revocation
	// Context says for whom a call is, where one client serves several
	// workspaces.
	Context = langbot.Context
)
