package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// api is a client of a home's daemon.
func (h *home) api() *client.Client {
	h.t.Helper()
	c, err := client.New(client.Options{Socket: h.dir + "/run/carboy/carboy.sock"})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// TestSessionTools uses a session's tools and attachments through the daemon.
func TestSessionTools(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		h.boxServe(wall, nil)
		h.ok("session", "exec", "--session", "ann", "--", "echo one > f")
		c, ctx := h.api(), t.Context()
		wrote, err := c.SessionWrite(ctx, "ann", tools.WriteRequest{Path: "src/a.py", Content: "import os\nneedle = 1\n"})
		if err != nil || !wrote.OK || !wrote.Created {
			t.Fatalf("write: %+v, %v", wrote, err)
		}
		edited, err := c.SessionEdit(ctx, "ann", tools.EditRequest{Path: "src/a.py", OldString: "needle = 1", NewString: "needle = 42"})
		if err != nil || !edited.OK || edited.Line != 2 {
			t.Errorf("edit: %+v, %v", edited, err)
		}
		read, err := c.SessionRead(ctx, "ann", tools.ReadRequest{Path: "src/a.py", Offset: 2})
		if err != nil || read.Content != "needle = 42" {
			t.Errorf("read: %+v, %v", read, err)
		}
		found, err := c.SessionGlob(ctx, "ann", tools.GlobRequest{Pattern: "*.py"})
		if err != nil || len(found.Matches) != 1 {
			t.Errorf("glob: %+v, %v", found, err)
		}
		lines, err := c.SessionGrep(ctx, "ann", tools.GrepRequest{Pattern: `needle = \d+`})
		if err != nil || len(lines.Matches) != 1 {
			t.Errorf("grep: %+v, %v", lines, err)
		}
		if out, err := c.SessionRead(ctx, "ann", tools.ReadRequest{Path: "/etc/passwd"}); err != nil || out.Code != tools.ToolEscapes {
			t.Errorf("read outside: %+v, %v", out, err)
		}
		if _, err := c.SessionRead(ctx, "bob", tools.ReadRequest{Path: "f"}); err == nil {
			t.Error("a session that is not there was read")
		}
		passAttachments(t, h, c)
		wantTold(t, h)
		h.ok("session", "rm", "ann")
	})
}

// passAttachments takes 8 MiB in and out.
func passAttachments(t *testing.T, h *home, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	big := []byte(strings.Repeat("x", 8<<20))
	in, err := c.Deliver(ctx, "ann", tools.AttachmentsIn{QueryID: "q-1", Files: []tools.Attachment{{Name: "a b.png", Data: big}, {Name: "n.txt", Data: []byte("hi")}}})
	if err != nil || len(in.Attachments) != 2 || in.Attachments[0].Path != "/workspace/inbox/q-1/a_b.png" {
		t.Fatalf("deliver: %+v, %v", in, err)
	}
	h.ok("session", "exec", "--session", "ann", "--", "mkdir -p outbox/q-1 && cp inbox/q-1/* outbox/q-1/")
	out, err := c.Collect(ctx, "ann", "q-1")
	if err != nil || len(out.Attachments) != 2 || out.Attachments[0].Size != int64(len(big)) || out.Attachments[1].Base64 != "aGk=" {
		t.Fatalf("collect: %d, %v", len(out.Attachments), err)
	}
	if _, err := c.Deliver(ctx, "ann", tools.AttachmentsIn{QueryID: "q-2", Files: []tools.Attachment{{Name: "n.txt", Data: []byte("hi")}}}); err != nil {
		t.Fatal(err)
	}
	h.ok("session", "exec", "--session", "ann", "--", "mkdir -p /workspace/outbox/q-2 && touch /workspace/outbox/q-2/left")
	if _, err := c.Purge(ctx, "ann"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"inbox/q-2/n.txt", "outbox/q-2/left"} {
		if got, err := c.SessionRead(ctx, "ann", tools.ReadRequest{Path: path}); err != nil || got.Code != tools.ToolNotFound {
			t.Errorf("after all were removed %s is %+v, %v", path, got, err)
		}
	}
	if _, err := c.Collect(ctx, "ann", "../up"); err == nil {
		t.Error("a query's ID that leads elsewhere was taken")
	}
}

// wantTold finds each call in the record of sessions, and the errors where
// errors are.
func wantTold(t *testing.T, h *home) {
	t.Helper()
	f, err := os.Open(filepath.Join(h.dir, "state", "carboy", "audit", "sessions.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.Contains(s.Text(), "needle") {
			t.Errorf("a record has what was written: %s", s.Text())
		}
		var r struct{ Action, Path, Status, Error, Sandbox string }
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Action != "exec" {
			got = append(got, strings.TrimSpace(r.Action+" "+r.Path+" "+r.Status+r.Error))
		}
	}
	want := []string{
		"tool:write src/a.py ok", "tool:edit src/a.py ok", "tool:read src/a.py ok", "tool:glob  ok", "tool:grep  ok",
		"tool:read /etc/passwd escapes", "tool:read f BoxSessionNotFoundError",
		"attachments:deliver  ok", "attachments:collect  ok", "attachments:deliver  ok", "attachments:purge  ok",
		"tool:read inbox/q-2/n.txt not_found", "tool:read outbox/q-2/left not_found", "attachments:collect  BoxValidationError",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the record has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if list, err := h.api().SessionErrors(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("errors %+v, %v", list, err)
	}
}

// TestBoxHardQuota fills workspaces whose quota is a file system's own: nothing
// beyond it gets in, whichever wall, and whoever owns the workspace.
func TestBoxHardQuota(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		c := boxClient(t, h.boxServe(wall, nil))
		if _, err := c.Init(t.Context(), map[string]any{"local": map[string]any{"host_root": "/nowhere/box"}}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"", "/nowhere/box/default"} {
			spec := boxservice.NewSpec("full"+filepath.Base(path), "")
			spec.HostPath, spec.WorkspaceQuotaMB, spec.WorkspaceInodes = path, 16, 500
			got := sh(t, c, spec, "dd if=/dev/zero of=big bs=64k count=1000 2>/dev/null; sync; stat -c %s big; rm big; "+
				"for i in $(seq 600); do touch f$i 2>/dev/null || break; done; ls -A | wc -l")
			var size, files int64
			if _, err := fmt.Sscan(got, &size, &files); err != nil {
				t.Fatalf("%v: %q", err, got)
			}
			t.Logf("%s %q: %d bytes and %d files fit", wall, path, size, files)
			if size > 16<<20 || size < 14<<20 || files > 500 || files < 400 {
				t.Errorf("%q: %d bytes and %d files fit into 16 MiB and 500 files", path, size, files)
			}
			if path != "" {
				growsWhenFree(t, h, c, spec)
				continue
			}
			if info, err := c.Get(t.Context(), spec.SessionID); err != nil || info.Quota != sessions.QuotaHard {
				t.Errorf("%q: %+v, %v", path, info, err)
			}
		}
	})
}

// growsWhenFree asks for more of a workspace that sessions share.
func growsWhenFree(t *testing.T, h *home, c *boxservice.Client, spec boxservice.Spec) {
	t.Helper()
	info, err := c.Get(t.Context(), spec.SessionID)
	if err != nil || info.Quota != sessions.QuotaHard || !strings.Contains(fmt.Sprint(info.Notices), "shows the volume box-default-") {
		t.Errorf("%+v, %v", info, err)
	}
	more := spec
	more.SessionID, more.Cmd, more.WorkspaceQuotaMB, more.WorkspaceInodes = "more", "ls | wc -l", 48, 0
	res, err := c.Exec(t.Context(), more)
	if err != nil || !strings.Contains(fmt.Sprint(res.Notices), "keeps its 16 MiB, for it can't grow to 48: volume box-default-") {
		t.Errorf("while another has it: %+v, %v", res, err)
	}
	volume := strings.Fields(strings.Split(h.ok("volume", "ls"), "\n")[1])[0]
	if r := h.run(nil, "volume", "rm", volume); r.code != 125 || !strings.Contains(r.stderr, "carboy session rm") {
		t.Errorf("volume rm: %+v", r)
	}
	for _, id := range []string{spec.SessionID, "more"} {
		if err := c.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	more.Cmd = "ls | wc -l; rm f1; dd if=/dev/zero of=big bs=64k count=2000 2>/dev/null; stat -c %s big"
	res, err = c.Exec(t.Context(), more)
	var files, size int64
	if _, serr := fmt.Sscan(res.Stdout, &files, &size); err != nil || serr != nil || !strings.Contains(fmt.Sprint(res.Notices), "it was grown to 48 MiB") {
		t.Fatalf("when it is free: %+v, %v", res, err)
	}
	if files < 400 || size > 48<<20 || size < 46<<20 {
		t.Errorf("it has %d files, and %d bytes fit", files, size)
	}
	if err := c.Delete(t.Context(), "more"); err != nil {
		t.Error(err)
	}
	h.ok("volume", "rm", volume)
}

// TestBoxNotices has what a process and a session are otherwise than asked reach
// both doors.
func TestBoxNotices(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	c := boxClient(t, h.boxServe("process", nil))
	if _, err := c.Init(t.Context(), map[string]any{"local": map[string]any{"host_root": "/nowhere/box"}}); err != nil {
		t.Fatal(err)
	}
	plain := boxservice.NewSpec("plain", "")
	if info, err := c.Create(t.Context(), plain); err != nil || len(info.Notices) > 0 { // the control
		t.Errorf("as it was asked: %+v, %v", info, err)
	}
	spec := boxservice.NewSpec("owned", "")
	spec.HostPath = "/nowhere/box/default"
	if info, err := c.Create(t.Context(), spec); err != nil || len(info.Notices) != 1 {
		t.Errorf("create: %+v, %v", info, err)
	}
	p, err := c.StartProcess(t.Context(), "owned", boxservice.ProcessSpec{Command: "sleep", Args: []string{"100"}, MemoryMB: 64})
	if err != nil || len(p.Notices) != 1 {
		t.Errorf("start: %+v, %v", p, err)
	}
	info, err := c.Get(t.Context(), "owned")
	if err != nil || len(info.Notices) != 1 || info.Process == nil || len(info.Process.Notices) != 1 {
		t.Errorf("by the dialect: %+v, %v", info, err)
	}
	mine, err := h.api().Session(t.Context(), "owned")
	if err != nil || fmt.Sprint(mine.Notices) != fmt.Sprint(info.Notices) || mine.Process == nil || fmt.Sprint(mine.Process.Notices) != fmt.Sprint(info.Process.Notices) {
		t.Errorf("by the API: %+v, %v", mine, err)
	}
	got, err := h.api().CreateSession(t.Context(), sessions.CreateRequest{SessionID: "small", Payload: map[string]any{"timeout_sec": 1000}})
	if err != nil || len(got.Adjusted) == 0 {
		t.Errorf("what a profile changes: %+v, %v", got, err)
	}
	for _, id := range []string{"plain", "owned", "small"} {
		if err := c.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}
