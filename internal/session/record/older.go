package record

import (
	"encoding/json"

	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// olderSpec is what a session was asked for, as records had it before they had a
// request.Session: in the words of LangBot's Box, with a command's fields, which
// were empty.
type olderSpec struct {
	SessionID        string          `json:"session_id"`
	Cmd              string          `json:"cmd"`
	Workdir          string          `json:"workdir"`
	TimeoutSec       int             `json:"timeout_sec"`
	Network          string          `json:"network"`
	Env              json.RawMessage `json:"env"`
	Image            string          `json:"image"`
	HostPath         string          `json:"host_path"`
	HostPathMode     string          `json:"host_path_mode"`
	MountPath        string          `json:"mount_path"`
	ExtraMounts      []olderMount    `json:"extra_mounts"`
	SkillName        string          `json:"skill_name"`
	Persistent       bool            `json:"persistent"`
	CPUs             float64         `json:"cpus"`
	MemoryMB         int64           `json:"memory_mb"`
	PIDsLimit        int64           `json:"pids_limit"`
	ReadOnlyRootFS   bool            `json:"read_only_rootfs"`
	WorkspaceQuotaMB int64           `json:"workspace_quota_mb"`
	OnTimeout        string          `json:"on_timeout"`
	Quota            string          `json:"quota"`
	WorkspaceInodes  int64           `json:"workspace_inodes"`
	Isolation        string          `json:"isolation"`
}

type olderMount struct {
	HostPath  string `json:"host_path"`
	MountPath string `json:"mount_path"`
	Mode      string `json:"mode"`
}

// olderImage is what older records call the configured image.
const olderImage = "rockchin/langbot-sandbox:latest"

// isOlder reports whether a record's spec is of the older form.
func isOlder(b []byte) bool {
	var of struct {
		SessionID *string `json:"session_id"`
	}
	return json.Unmarshal(b, &of) == nil && of.SessionID != nil
}

func (o olderSpec) request() request.Session {
	s := request.Session{
		Image: o.Image, Isolation: o.Isolation, Network: o.Network, ReadOnlyRoot: o.ReadOnlyRootFS,
		CPUs: o.CPUs, Memory: o.MemoryMB << 20, PIDs: o.PIDsLimit, Persistent: o.Persistent,
		Workspace: request.Workspace{
			HostPath: o.HostPath, Mode: o.HostPathMode, Target: o.MountPath,
			Size: o.WorkspaceQuotaMB << 20, Inodes: o.WorkspaceInodes, Quota: o.Quota,
		},
	}
	if s.Image == olderImage {
		s.Image = ""
	}
	for _, m := range o.ExtraMounts {
		s.Mounts = append(s.Mounts, request.Mount{HostPath: m.HostPath, Target: m.MountPath, Mode: m.Mode})
	}
	return s
}
