package box

import wire "github.com/carboy-sandbox/carboy/api/box"

// What a runtime is asked for and answers with. The fields, their defaults and
// what is refused of them stand where they are declared.
type (
	Spec          = wire.Spec
	Mount         = wire.Mount
	Profile       = wire.Profile
	Adjustment    = wire.Adjustment
	Result        = wire.Result
	ToolResult    = wire.ToolResult
	SessionInfo   = wire.SessionInfo
	Difference    = wire.Difference
	ProcessSpec   = wire.ProcessSpec
	ProcessInfo   = wire.ProcessInfo
	Backend       = wire.Backend
	RuntimeStatus = wire.RuntimeStatus
	Status        = wire.Status
	ErrorRecord   = wire.ErrorRecord
	ToolSpec      = wire.ToolSpec
	Skill         = wire.Skill
	SkillInput    = wire.SkillInput
	SkillWritten  = wire.SkillWritten
	SkillFiles    = wire.SkillFiles
	SkillContent  = wire.SkillContent
	Grant         = wire.Grant
	Revocation    = wire.Revocation
	// Context says for whom a call is, where one client serves several
	// workspaces.
	Context = wire.Context
)
