package tool

import (
	"encoding/base64"
	"encoding/json"

	"github.com/carboy-sandbox/carboy/api/tools"
)

// Plan is what a request is about, as far as that can be told without its
// workspace.
type Plan struct {
	Path  string // the file or directory, as the request has it
	Skill string // whose package it may change; "": none's
	// Bytes and Files are how much there may be more after it; Replaces is the
	// file whose size goes off that.
	Bytes    int64
	Files    int
	Replaces string
}

// PlanOf reads a request for a plan. One that is no request has none: the tool
// refuses it.
func PlanOf(name, root string, request []byte) Plan {
	var q struct {
		tools.WriteRequest
		OldString string `json:"old_string"`
		NewString string `json:"new_string"`
	}
	if json.Unmarshal(request, &q) != nil {
		return Plan{}
	}
	p := Plan{Path: q.Path}
	switch name {
	case tools.ToolWrite:
		p.Skill, p.Files, p.Bytes = SkillOf(root, q.Path), 1, int64(len(q.Content))
		if q.Encoding == tools.EncodingBase64 {
			p.Bytes = int64(base64.StdEncoding.DecodedLen(len(q.Content)))
		}
		if q.Mode != tools.WriteAppend {
			p.Replaces = q.Path
		}
	case tools.ToolEdit:
		p.Skill, p.Bytes = SkillOf(root, q.Path), int64(len(q.NewString)-len(q.OldString))
	}
	return p
}
