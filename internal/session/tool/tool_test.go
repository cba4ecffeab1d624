package tool_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

func TestTools(t *testing.T) {
	w := newWorld(t, false)
	ctx := t.Context()
	wrote, err := w.Write(ctx, tools.WriteRequest{Path: w.path("src/a.py"), Content: "import os\nneedle\n"})
	must(t, err)
	want := tools.WriteResult{Failure: tools.Failure{OK: true}, Path: w.path("src/a.py"), SizeBytes: 17, Created: true}
	if diff := cmp.Diff(want, wrote); diff != "" {
		t.Errorf("write (-want +got):\n%s", diff)
	}
	edited, err := w.Edit(ctx, tools.EditRequest{Path: "src/a.py", OldString: "needle", NewString: "pin"})
	must(t, err)
	if !edited.OK || edited.Path != "src/a.py" || edited.Line != 2 {
		t.Errorf("edit: %+v", edited)
	}
	read, err := w.Read(ctx, tools.ReadRequest{Path: "src/a.py"})
	must(t, err)
	if !read.OK || read.Content != "import os\npin" {
		t.Errorf("read: %+v", read)
	}
	found, err := w.Glob(ctx, tools.GlobRequest{Pattern: "*.py"})
	must(t, err)
	if !found.OK || found.Preview != w.path("src/a.py") {
		t.Errorf("glob: %+v", found)
	}
	lines, err := w.Grep(ctx, tools.GrepRequest{Pattern: "p[i]n"})
	must(t, err)
	if diff := cmp.Diff([]tools.GrepMatch{{File: w.path("src/a.py"), Line: 2, Content: "pin"}}, lines.Matches); diff != "" || !lines.OK {
		t.Errorf("grep (-want +got):\n%s", diff)
	}
	for name, call := range map[string]func() (tools.Failure, error){
		"read": func() (tools.Failure, error) {
			r, err := w.Read(ctx, tools.ReadRequest{Path: "/etc/passwd"})
			return r.Failure, err
		},
		"write": func() (tools.Failure, error) {
			r, err := w.Write(ctx, tools.WriteRequest{Path: "../x"})
			return r.Failure, err
		},
		"edit": func() (tools.Failure, error) {
			r, err := w.Edit(ctx, tools.EditRequest{Path: "/etc/passwd", OldString: "root"})
			return r.Failure, err
		},
		"glob": func() (tools.Failure, error) {
			r, err := w.Glob(ctx, tools.GlobRequest{Pattern: "*", Path: "/etc"})
			return r.Failure, err
		},
		"grep": func() (tools.Failure, error) {
			r, err := w.Grep(ctx, tools.GrepRequest{Pattern: "x", Path: "/etc"})
			return r.Failure, err
		},
	} {
		f, err := call()
		if err != nil || f.OK || f.Code != tools.ToolEscapes {
			t.Errorf("%s out of the workspace: %+v, %v", name, f, err)
		}
	}
	bad, err := w.Write(ctx, tools.WriteRequest{Path: "x", Content: "\xff"})
	if err != nil || bad.Code != tools.ToolInvalid {
		t.Errorf("a text that is none: %+v, %v", bad, err)
	}
}

func TestCall(t *testing.T) {
	w := newWorld(t, false)
	for _, tt := range []struct {
		name, tool, body string
		kind             sandbox.Kind
		want             string
	}{
		{"write", "write", `{"path":"f","content":"x"}`, "", `"ok":true`},
		{"test_host_file_api_falls_back_to_tenant_box_when_openat_is_unavailable", "read", `{"path":"f"}`, "", `"content":"x"`}, // there is no other way
		{"edit", "edit", `{"path":"f","old_string":"x","new_string":"y"}`, "", `"line":1`},
		{"glob", "glob", `{"pattern":"f"}`, "", `"truncated_by":null`},
		{"grep", "grep", `{"pattern":"y"}`, "", `"content":"y"`},
		{"failure", "read", `{"path":"/etc/passwd"}`, "", `"code":"escapes"`},
		{"exec", "exec", `{"command":"x"}`, sandbox.NotFound, ""},
		{"clear", "clear", `{"path":"f"}`, sandbox.NotFound, ""},
		{"case", "read", `{"path":"f","Path":"g"}`, sandbox.Invalid, ""},
		{"twice", "read", `{"path":"f","path":"g"}`, sandbox.Invalid, ""},
		{"unknown-field", "read", `{"path":"f","command":"x"}`, sandbox.Invalid, ""},
		{"no-object", "read", `[]`, sandbox.Invalid, ""},
		{"two", "read", `{}{}`, sandbox.Invalid, ""},
		{"no-utf-8", "read", "{\"path\":\"\xff\"}", sandbox.Invalid, ""},
		{"long", "write", strings.Repeat(" ", tool.MaxRequest+1), sandbox.Invalid, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, err := w.Call(t.Context(), tt.tool, []byte(tt.body))
			if sandbox.KindOf(err) != tt.kind {
				t.Fatalf("error %v of kind %q, want %q", err, sandbox.KindOf(err), tt.kind)
			}
			if b, _ := json.Marshal(res); !strings.Contains(string(b), tt.want) {
				t.Errorf("got %s, want %s", b, tt.want)
			}
		})
	}
}

func TestGuidance(t *testing.T) {
	const outbox = "/workspace/outbox/"
	t.Run("test_guidance_includes_outbox_when_query_id_given", func(t *testing.T) {
		if got, err := toolspec.Guidance("", "42"); err != nil || !strings.Contains(got, outbox+"42/") {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("test_guidance_omits_outbox_without_query_id", func(t *testing.T) {
		if got, err := toolspec.Guidance("", ""); err != nil || strings.Contains(got, outbox) || !strings.Contains(got, "exec") {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("test_guidance_outbox_independent_of_inbound_attachments", func(t *testing.T) {
		w := newWorld(t, false)
		if _, err := os.Stat(w.path("inbox")); err == nil {
			t.Fatal("there is an inbox")
		}
		if got, err := toolspec.Guidance(w.root, "42"); err != nil || !strings.Contains(got, w.path("outbox/42")+"/") {
			t.Errorf("%q, %v", got, err)
		}
	})
	_, err := toolspec.Guidance("", "../x")
	wantKind(t, err, sandbox.Invalid, "query_id")
}

// TestHostileGuest hands on nothing that is no answer to what was asked.
func TestHostileGuest(t *testing.T) {
	long := strings.Repeat("x", tools.MaxToolBytes+1000)
	call := map[string]func(context.Context, *tool.Tools) error{
		"read": func(ctx context.Context, t *tool.Tools) error {
			_, err := t.Read(ctx, tools.ReadRequest{Path: "f"})
			return err
		},
		"write": func(ctx context.Context, t *tool.Tools) error {
			_, err := t.Write(ctx, tools.WriteRequest{Path: "f"})
			return err
		},
		"glob": func(ctx context.Context, t *tool.Tools) error {
			_, err := t.Glob(ctx, tools.GlobRequest{Pattern: "f"})
			return err
		},
		"grep": func(ctx context.Context, t *tool.Tools) error {
			_, err := t.Grep(ctx, tools.GrepRequest{Pattern: "f"})
			return err
		},
	}
	const text = `"start_line":1,"end_line":1,"max_lines":2000`
	for _, tt := range []struct {
		name, tool string
		status     int
		body       string
		kind       sandbox.Kind // "": it is taken
	}{
		{"control", "read", 200, `{"ok":true,"content":"x",` + text + `}`, ""},
		{"no-json", "read", 200, `<html>`, sandbox.Unavailable},
		{"nothing", "read", 200, ``, sandbox.Unavailable},
		{"no-outcome", "read", 200, `{}`, sandbox.Unavailable},
		{"no-part", "read", 200, `{"ok":true,"content":"x"}`, sandbox.Unavailable},
		{"two-parts", "read", 200, `{"ok":true,"is_directory":true,` + text + `}`, sandbox.Unavailable},
		{"too-much", "read", 200, `{"ok":true,"content":"` + long + `",` + text + `}`, sandbox.Unavailable},
		{"endless", "read", 200, `{"ok":true,"content":"` + strings.Repeat("y", 2<<20), sandbox.Unavailable},
		{"lines-of-nowhere", "read", 200, `{"ok":true,"content":"","start_line":5,"end_line":1}`, sandbox.Unavailable},
		{"cut-for-no-cause", "read", 200, `{"ok":true,"content":"","truncated":true,` + text + `}`, sandbox.Unavailable},
		{"cut-for-a-strange-cause", "read", 200, `{"ok":true,"content":"","truncated":true,"truncated_by":"moon",` + text + `}`, sandbox.Unavailable},
		{"bytes-that-are-none", "read", 200, `{"ok":true,"content":"!","encoding":"base64","length":1}`, sandbox.Unavailable},
		{"bytes-of-another-length", "read", 200, `{"ok":true,"content":"AAAA","encoding":"base64","length":4}`, sandbox.Unavailable},
		{"bytes-that-go-back", "read", 200, `{"ok":true,"content":"AAAA","encoding":"base64","length":3,"has_more":true,"next_byte_offset":0,"truncated":true,"truncated_by":"bytes"}`, sandbox.Unavailable},
		{"glob-control", "glob", 200, `{"ok":true,"matches":["/workspace/x"],"total":1}`, ""},
		{"glob-elsewhere", "glob", 200, `{"ok":true,"matches":["/etc/passwd"],"total":1}`, sandbox.Unavailable},
		{"glob-neighbour", "glob", 200, `{"ok":true,"matches":["/workspacefoo"],"total":1}`, sandbox.Unavailable},
		{"glob-many", "glob", 200, `{"ok":true,"matches":["/workspace/x"` + strings.Repeat(`,"/workspace/x"`, 100) + `],"total":101}`, sandbox.Unavailable},
		{"grep-control", "grep", 200, `{"ok":true,"matches":[{"file":"/workspace/x","line":1,"content":"f"}],"total":1}`, ""},
		{"grep-long-line", "grep", 200, `{"ok":true,"matches":[{"file":"/workspace/x","line":1,"content":"` + long[:600] + `"}],"total":1}`, sandbox.Unavailable},
		{"grep-no-line", "grep", 200, `{"ok":true,"matches":[{"file":"/workspace/x","content":"f"}],"total":1}`, sandbox.Unavailable},
		{"grep-miscounted", "grep", 200, `{"ok":true,"matches":[],"total":1}`, sandbox.Unavailable},
		{"grep-names", "grep", 200, `{"ok":true,"skipped_dirs":["` + long[:100] + `"]}`, sandbox.Unavailable},
		{"old-agent", "read", 404, `404 page not found`, sandbox.Unsupported},
		{"gone-meanwhile", "read", 404, `{"message":"no such directory","code":404}`, sandbox.Conflict},
		{"refused", "read", 400, `{"message":"no","code":400}`, sandbox.Invalid},
		{"refused-for-no-reason", "read", 400, `{}`, sandbox.Unavailable},
		{"redirected", "read", 302, ``, sandbox.Unavailable},
		{"failed", "write", 500, `{"message":"no"}`, sandbox.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			native := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "http://169.254.169.254/")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}), "")
			err := call[tt.tool](t.Context(), native)
			if sandbox.KindOf(err) != tt.kind {
				t.Errorf("error %v of kind %q, want %q", err, sandbox.KindOf(err), tt.kind)
			}
		})
	}
}

// TestHostileText cleans what is shown, and waits for nobody for ever.
func TestHostileText(t *testing.T) {
	long := strings.Repeat("x", 2000)
	t.Run("text", func(t *testing.T) {
		native := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"ok":false,"error":"a\u001b[31m\n` + long + `","code":"moon"}`))
		}), "")
		r, err := native.Read(t.Context(), tools.ReadRequest{Path: "f"})
		if err != nil || r.Code != tools.ToolFailed || len(r.Error) > 700 || strings.ContainsAny(r.Error, "\x1b\n") {
			t.Errorf("got %+v, %v", r.Failure, err)
		}
	})
	t.Run("silent", func(t *testing.T) {
		end := make(chan struct{})
		native := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }), "")
		defer close(end)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := native.Read(ctx, tools.ReadRequest{Path: "f"})
		wantKind(t, err, sandbox.Unavailable, "in time")
	})
}

func TestExec(t *testing.T) {
	t.Run("test_exec_result_is_capped_and_exposes_preview_metadata", func(t *testing.T) {
		r := tool.Exec(sessions.ToolResult{OK: true, Stdout: strings.Repeat("a", 60_000), Stderr: strings.Repeat("b", 60_000)})
		for _, s := range []string{r.Stdout, r.Stderr, r.Preview} {
			if len(s) > tools.MaxToolBytes || len(s) < tools.MaxToolBytes-8 || !strings.Contains(s, " bytes left out] ...") {
				t.Errorf("%d bytes, of which %q", len(s), s[len(s)/2:len(s)/2+10])
			}
		}
		if !r.OK || !strings.HasPrefix(r.Preview, "stdout:\naaa") || !strings.HasSuffix(r.Preview, "bbb") {
			t.Errorf("%v, %.20q", r.OK, r.Preview)
		}
		if !r.StdoutTruncated || !r.StderrTruncated || !r.Truncated || r.TruncatedBy != tools.ByBytes {
			t.Errorf("%v, %v, %v by %q", r.StdoutTruncated, r.StderrTruncated, r.Truncated, r.TruncatedBy)
		}
	})
	for _, tt := range []struct {
		name           string
		r              sessions.ToolResult
		preview        string
		truncated, cut bool
	}{
		{"stdout", sessions.ToolResult{Stdout: "out\n"}, "out\n", false, false},
		{"stderr", sessions.ToolResult{Stderr: "err"}, "err", false, false},
		{"both", sessions.ToolResult{Stdout: "out", Stderr: "err"}, "stdout:\nout\n\nstderr:\nerr", false, false},
		{"none", sessions.ToolResult{}, "", false, false},
		{"cut-below", sessions.ToolResult{Stdout: "x", StdoutTruncated: true}, "x", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tool.Exec(tt.r)
			if r.Preview != tt.preview || r.Truncated != tt.truncated || (r.TruncatedBy != "") != tt.cut {
				t.Errorf("%d bytes %.40q, %v by %q", len(r.Preview), r.Preview, r.Truncated, r.TruncatedBy)
			}
		})
	}
}

func TestSkillOf(t *testing.T) {
	for _, tt := range []struct{ root, path, want string }{
		{"", "/workspace/.skills/pdf/SKILL.md", "pdf"},
		{"", ".skills/pdf", "pdf"},
		{"", "/workspace/x/../.skills/pdf/", "pdf"},
		{"", "/workspace/.skills", ""},
		{"", "/workspace/.skills/../x", ""},
		{"", "/workspace/skills/pdf", ""},
		{"/data", "/data/.skills/pdf/x", "pdf"},
		{"/data", "/workspace/.skills/pdf/x", ""},
	} {
		if got := tool.SkillOf(tt.root, tt.path); got != tt.want {
			t.Errorf("SkillOf(%q, %q) = %q, want %q", tt.root, tt.path, got, tt.want)
		}
	}
}
