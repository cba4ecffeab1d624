package langbot

import "encoding/json"

// Actions of the RPC, beside those of its transport.
const (
	ActionPing      = "__ping"
	ActionFileChunk = "__file_chunk"

	ActionInit         = "box_init"
	ActionHealth       = "box_health"
	ActionStatus       = "box_status"
	ActionBackendInfo  = "box_get_backend_info"
	ActionExec         = "box_exec"
	ActionCreate       = "box_create_session"
	ActionGet          = "box_get_session"
	ActionList         = "box_get_sessions"
	ActionDelete       = "box_delete_session"
	ActionStartProcess = "box_start_managed_process"
	ActionGetProcess   = "box_get_managed_process"
	ActionStopProcess  = "box_stop_managed_process"
	ActionListSkills   = "box_list_skills"
	ActionGetSkill     = "box_get_skill"
	ActionCreateSkill  = "box_create_skill"
	ActionUpdateSkill  = "box_update_skill"
	ActionDeleteSkill  = "box_delete_skill"
	ActionScanSkill    = "box_scan_skill_directory"
	ActionSkillFiles   = "box_list_skill_files"
	ActionReadSkill    = "box_read_skill_file"
	ActionWriteSkill   = "box_write_skill_file"
	ActionPreviewZip   = "box_preview_skill_zip"
	ActionInstallZip   = "box_install_skill_zip"
	ActionGrant        = "box_upsert_sandbox_admission_grant"
	ActionRevoke       = "box_revoke_sandbox_admission_grant"
	ActionVerifyShared = "box_verify_shared_workspace"
	ActionShutdown     = "box_shutdown"
)

// Variables of the environment that LangBot gives the runtime it starts.
const (
	EnvControlToken = "LANGBOT_BOX_CONTROL_TOKEN"
	EnvInstance     = "LANGBOT_BOX_TRUSTED_INSTANCE_UUID"
	EnvConfig       = "LANGBOT_BOX_CONFIG"
)

// Headers of a runtime's HTTP requests.
const (
	HeaderControlToken = "X-LangBot-Box-Control-Token"
	HeaderInstance     = "X-LangBot-Instance-Id"
	HeaderWorkspace    = "X-LangBot-Workspace-Id"
	HeaderGeneration   = "X-LangBot-Placement-Generation"
)

// RelayEnded is why a relay is closed whose process has ended, when all that it
// wrote was read. Where one is closed for anything else it says that.
const RelayEnded = "the process ended its output"

// Context says for whom an action is, where a host serves several workspaces.
// A client of before there were several sends none.
type Context struct {
	InstanceUUID        string `json:"instance_uuid"`
	WorkspaceUUID       string `json:"workspace_uuid"`
	PlacementGeneration int64  `json:"placement_generation"`
}

// Request is one message to the other side; it has an Action. A message
// without one is a Response.
type Request struct {
	SeqID   int64           `json:"seq_id"`
	Action  string          `json:"action"`
	Data    json.RawMessage `json:"data"`
	Context *Context        `json:"context,omitempty"`
}

// Response answers the Request with its SeqID. Code is 0 where it succeeded,
// and Message then "success"; else Message has a class, ": " and a text, and
// Data is an empty object. ChunkStatus is "continue" in an answer of one part,
// which all of Box's are.
type Response struct {
	SeqID       int64           `json:"seq_id"`
	Code        int             `json:"code"`
	Message     string          `json:"message"`
	Data        json.RawMessage `json:"data"`
	ChunkStatus string          `json:"chunk_status,omitempty"`
}

// Grant lets one workspace have a sandbox for a while.
type Grant struct {
	InstanceUUID        string `json:"instance_uuid"`
	WorkspaceUUID       string `json:"workspace_uuid"`
	ExecutionGeneration int64  `json:"execution_generation"`
	EntitlementRevision int64  `json:"entitlement_revision"`
	ExpiresAt           string `json:"expires_at"` // RFC 3339, with its zone
	MaxSessions         int    `json:"max_sessions"`
	MaxProcesses        int    `json:"max_managed_processes"`
}

// Revocation takes a workspace's grants back, and those up to its revision for
// good.
type Revocation struct {
	InstanceUUID        string `json:"instance_uuid"`
	WorkspaceUUID       string `json:"workspace_uuid"`
	EntitlementRevision int64  `json:"entitlement_revision"`
}
