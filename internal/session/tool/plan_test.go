package tool_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
)

func TestPlanOf(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		want          tool.Plan
	}{
		{tools.ToolWrite, `{"path":"a","content":"x\ny"}`, tool.Plan{Path: "a", Bytes: 3, Files: 1, Replaces: "a"}},
		{tools.ToolWrite, `{"path":"a","content":"xyz","mode":"append"}`, tool.Plan{Path: "a", Bytes: 3, Files: 1}},
		{tools.ToolWrite, `{"path":"a","content":"eHh4","encoding":"base64"}`, tool.Plan{Path: "a", Bytes: 3, Files: 1, Replaces: "a"}},
		{tools.ToolWrite, `{"path":"/workspace/.skills/pdf/x","content":""}`, tool.Plan{Path: "/workspace/.skills/pdf/x", Skill: "pdf", Files: 1, Replaces: "/workspace/.skills/pdf/x"}},
		{tools.ToolEdit, `{"path":"a","old_string":"xyz","new_string":"x"}`, tool.Plan{Path: "a", Bytes: -2}},
		{tools.ToolRead, `{"path":"a"}`, tool.Plan{Path: "a"}},
		{tools.ToolGrep, `{"pattern":"a"}`, tool.Plan{}},
		{tools.ToolWrite, `{"path":7}`, tool.Plan{}},
	} {
		if got := tool.PlanOf(tt.name, "", []byte(tt.request)); got != tt.want {
			t.Errorf("%s %s = %+v, want %+v", tt.name, tt.request, got, tt.want)
		}
	}
}

func FuzzPlanOf(f *testing.F) {
	f.Add(tools.ToolWrite, []byte(`{"path":"a","content":"x","encoding":"base64"}`))
	f.Add(tools.ToolEdit, []byte(`{"path":"../a","old_string":"x","new_string":"\ud800"}`))
	f.Fuzz(func(t *testing.T, name string, request []byte) {
		p := tool.PlanOf(name, "", request)
		// A byte that is no UTF-8 becomes three.
		if p.Bytes > 3*int64(len(request)) || p.Files < 0 || p.Files > 1 || p.Replaces != "" && p.Replaces != p.Path {
			t.Errorf("PlanOf(%q, %q) = %+v", name, request, p)
		}
	})
}
