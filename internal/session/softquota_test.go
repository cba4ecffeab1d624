package session_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestSoftQuotaBetweenCommands has tools and managed processes write into a
// workspace that only looking holds to its quota.
func TestSoftQuotaBetweenCommands(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(root, 1000, 1000); err != nil {
		t.Skipf("needs root, to give a directory away: %v", err)
	}
	var told audits
	o := session.Options{Config: session.Config{AllowedMountRoots: []string{root}}, Audit: told.add}
	onWallWith(t, o, func(t *testing.T, d *real, again func() *real) {
		a, err := access.New(access.Options{Runtime: d.Runtime})
		if err != nil {
			t.Fatal(err)
		}
		spec := asked("k", "echo x > small")
		spec.HostPath, spec.WorkspaceQuotaMB = root, 1
		d.want(t, spec, 0, "")
		toolsAtQuota(t, a, &told)
		if info, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "sh", Args: []string{"-c", "read x; head -c 3000000 /dev/zero > big; sleep 1000"}}); err != nil || len(info.Notices) > 0 {
			t.Fatalf("StartProcess = %+v, %v", info, err)
		}
		d = again() // who watches is another now
		at, err := d.Attach(t.Context(), ann, "k", "")
		if err != nil {
			t.Fatal(err)
		}
		// It may have been stopped before it is known that it has its line.
		if err := at.WriteLine(t.Context(), []byte("go")); err != nil && !errors.Is(err, process.ErrEnded) {
			t.Fatal(err)
		}
		for err == nil { // until it is stopped
			_, err = at.ReadLine(t.Context())
		}
		_ = at.Close()
		info, err := d.Process(t.Context(), ann, "k", "")
		if err != nil || info.Status != sessions.ProcessExited || !strings.Contains(strings.Join(info.Notices, "\n"), "workspace quota exceeded while managed processes ran: used=") {
			t.Errorf("Process = %+v, %v", info, err)
		}
		_, err = d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "true"})
		if err == nil || !strings.HasPrefix(err.Error(), "workspace quota exceeded before execution: ") {
			t.Errorf("a process in what is over its quota: %v", err)
		}
		if d.Metrics().QuotaStops != 1 {
			t.Errorf("metrics %+v", d.Metrics())
		}
	})
	if !slices.ContainsFunc(told.all(), func(r session.AuditRecord) bool {
		return r.Action == "quota_stop" && r.Process == sessions.DefaultProcess
	}) {
		t.Errorf("the stop is in no record")
	}
}

// toolsAtQuota writes 1 MiB at most, though by turns.
func toolsAtQuota(t *testing.T, a *access.Access, told *audits) {
	t.Helper()
	c, ctx := access.Caller{Caller: ann}, t.Context()
	half := strings.Repeat("x", 600<<10)
	for _, tt := range []struct{ tool, request, code string }{
		{"write", `{"path":"a","content":"` + half + `"}`, ""},
		{"write", `{"path":"/workspace/a","content":"` + half + `"}`, ""}, // in its own place
		{"write", `{"path":"b","content":"` + half + `"}`, tools.ToolNoSpace},
		{"write", `{"path":"a","content":"` + half + `","mode":"append"}`, tools.ToolNoSpace},
		{"edit", `{"path":"small","old_string":"x","new_string":"` + half + `"}`, tools.ToolNoSpace},
		{"edit", `{"path":"small","old_string":"x","new_string":"y"}`, ""},
		{"read", `{"path":"nothing"}`, tools.ToolNotFound},
	} {
		res, err := a.Tool(ctx, c, "k", tt.tool, []byte(tt.request))
		var f tools.Failure
		switch r := res.(type) {
		case tools.WriteResult:
			f = r.Failure
		case tools.EditResult:
			f = r.Failure
		case tools.ReadResult:
			f = r.Failure
		}
		if err != nil || f.Code != tt.code || f.OK != (tt.code == "") {
			t.Errorf("%s %.40s: %+v, %v; want %q", tt.tool, tt.request, f, err, tt.code)
		}
		all := told.all()
		if last := all[len(all)-1]; last.Action != "tool:"+tt.tool || last.Path == "" || strings.Contains(last.Path, "xxx") ||
			tt.code != tools.ToolNoSpace && last.Status != cmp.Or(tt.code, "ok") {
			t.Errorf("%s: told of %+v", tt.tool, last)
		}
	}
	_, err := a.Deliver(ctx, c, "k", tools.AttachmentsIn{QueryID: "1", Files: []tools.Attachment{{Name: "f", Data: []byte(half)}}})
	if err == nil || !strings.HasPrefix(err.Error(), "workspace quota exceeded before execution: ") {
		t.Errorf("Deliver = %v", err)
	}
	if list := a.Errors(c); len(list) != 1 || list[0].SessionID != "k" || list[0].Type != langbot.ClassValidation {
		t.Errorf("errors %+v", list)
	}
	if _, err := a.Tool(ctx, c, "k", "no\x00tool", []byte("{}")); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a tool that is none: %v", err)
	}
	if all := told.all(); all[len(all)-1].Action != "tool:" || all[len(all)-1].Error == "" {
		t.Errorf("told of %+v", all[len(all)-1])
	}
}

// TestPatientWatch finds what was written within seconds, and else hardly looks.
func TestPatientWatch(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	exceeded := make(chan quota.Usage, 1)
	w := &quota.Watch{Dir: f, Limits: quota.Limits{Bytes: 1 << 20}, Patient: true, Exceeded: func(u quota.Usage) { exceeded <- u }}
	go w.Run(t.Context())
	from := time.Now()
	if err := os.WriteFile(dir+"/big", make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if u := <-exceeded; !u.OverBytes || time.Since(from) > patience.For(10*time.Second) {
		t.Errorf("%+v after %v", u, time.Since(from))
	}
}
