package session_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/access"
)

// TestToolsOnAWall uses the native tools and attachments of a session, as the
// daemon's API does.
func TestToolsOnAWall(t *testing.T) {
	onWall(t, func(t *testing.T, d *real, _ func() *real) {
		a, err := access.New(access.Options{Runtime: d.Runtime})
		if err != nil {
			t.Fatal(err)
		}
		c, ctx := access.Caller{Caller: ann}, t.Context()
		_, err = a.Tool(ctx, c, "k", "read", []byte(`{"path":"f"}`))
		if sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("a tool of a session that is not there: %v", err)
		}
		d.want(t, asked("k", "echo one > f"), 0, "")
		for _, tt := range []struct {
			tool, request string
			want          func(any) bool
		}{
			{"write", `{"path":"/workspace/g","content":"two"}`, func(r any) bool { return r.(tools.WriteResult).Created }},
			{"edit", `{"path":"f","old_string":"one","new_string":"three"}`, func(r any) bool { return r.(tools.EditResult).OK }},
			{"read", `{"path":"f"}`, func(r any) bool { return r.(tools.ReadResult).Content == "three" }},
			{"glob", `{"pattern":"*"}`, func(r any) bool { return r.(tools.GlobResult).Total >= 2 }},
			{"grep", `{"pattern":"th?ree"}`, func(r any) bool { return len(r.(tools.GrepResult).Matches) == 1 }},
			{"read", `{"path":"/etc/passwd"}`, func(r any) bool { return r.(tools.ReadResult).Code == tools.ToolEscapes }},
		} {
			if r, err := a.Tool(ctx, c, "k", tt.tool, []byte(tt.request)); err != nil || !tt.want(r) {
				t.Errorf("%s %s: %+v, %v", tt.tool, tt.request, r, err)
			}
		}
		in, err := a.Deliver(ctx, c, "k", tools.AttachmentsIn{QueryID: "1", Files: []tools.Attachment{{Name: "a b.txt", Data: []byte("hi")}}})
		if err != nil || len(in.Attachments) != 1 || in.Attachments[0].Path != "/workspace/inbox/1/a_b.txt" {
			t.Fatalf("deliver: %+v, %v", in, err)
		}
		d.want(t, asked("k", "mkdir -p outbox/1; cp inbox/1/a_b.txt outbox/1/r.txt; cat f"), 0, "three\n")
		for want := 1; want >= 0; want-- {
			if out, err := a.Collect(ctx, c, "k", tools.CollectRequest{QueryID: "1"}); err != nil || len(out.Attachments) != want {
				t.Errorf("collect: %+v, %v, want %d", out, err, want)
			}
		}
		if info, err := d.Get(ctx, ann, "k"); err != nil || info.Active != 0 {
			t.Errorf("the session is %+v, %v: still in use", info, err)
		}
	})
}
