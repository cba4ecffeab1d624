package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
)

// tools are the native tools of a sandbox, by the socket of its agent.
func (h *home) tools(t testing.TB, name string) *tool.Tools {
	t.Helper()
	boxes, err := filepath.Glob(h.dir + "/state/carboy/boxes/*/" + h.id(name))
	if err != nil || len(boxes) != 1 {
		t.Fatalf("the box's directory: %q, %v", boxes, err)
	}
	dir, err := beneath.OpenDir(boxes[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	key, err := dir.ReadFile("agent.key", control.KeySize)
	if err != nil {
		t.Fatal(err)
	}
	tools := tool.New(tool.Options{Dial: func(ctx context.Context) (net.Conn, error) {
		return control.Dial(ctx, dir, "agent.sock", control.Key(key))
	}})
	t.Cleanup(tools.Close)
	return tools
}

// TestNativeTools has each of them work behind both walls, for the sandbox's
// user and in its workspace alone.
func TestNativeTools(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall, "--disk", "32m")
		w, ctx := h.tools(t, name), t.Context()
		wrote, err := w.Write(ctx, tools.WriteRequest{Path: "/workspace/src/a.py", Content: "import os\nneedle = 1\n"})
		wantDone(t, wrote.Failure, err)
		if got := h.ok("exec", name, "--", "sh", "-c", "cd /workspace; cat src/a.py; stat -c %U src/a.py"); got != "import os\nneedle = 1\nuser\n" {
			t.Errorf("a command finds %q", got)
		}
		edited, err := w.Edit(ctx, tools.EditRequest{Path: "src/a.py", OldString: "needle = 1", NewString: "needle = 42"})
		wantDone(t, edited.Failure, err)
		read, err := w.Read(ctx, tools.ReadRequest{Path: "src/a.py", Offset: 2})
		if wantDone(t, read.Failure, err); read.Content != "needle = 42" {
			t.Errorf("read %q", read.Content)
		}
		found, err := w.Glob(ctx, tools.GlobRequest{Pattern: "**/*.py"})
		if wantDone(t, found.Failure, err); found.Preview != "/workspace/src/a.py" {
			t.Errorf("found %q", found.Preview)
		}
		lines, err := w.Grep(ctx, tools.GrepRequest{Pattern: `needle = \d+`})
		if wantDone(t, lines.Failure, err); len(lines.Matches) != 1 || lines.Matches[0].Line != 2 {
			t.Errorf("lines %+v", lines.Matches)
		}
		h.ok("exec", name, "--", "sh", "-c", "cd /workspace; ln -s /etc etc; ln -s src inside; ln -s / up")
		for _, p := range []string{"etc/passwd", "up/etc/passwd", "/etc/passwd", "../etc/passwd"} {
			if r, err := w.Read(ctx, tools.ReadRequest{Path: p}); err != nil || r.Code != tools.ToolEscapes {
				t.Errorf("%s: %+v, %v", p, r, err)
			}
		}
		inside, err := w.Read(ctx, tools.ReadRequest{Path: "inside/a.py"}) // the control
		wantDone(t, inside.Failure, err)
		fillUp(t, w)
	})
}

func wantDone(t testing.TB, f tools.Failure, err error) {
	t.Helper()
	if err != nil || !f.OK {
		t.Fatalf("got %+v, %v, want it done", f, err)
	}
}

// fillUp writes until there is no room, and sees that nothing else is lost.
func fillUp(t *testing.T, w *tool.Tools) {
	t.Helper()
	full := tools.Failure{OK: true}
	for i := 0; full.OK && i < 20; i++ {
		r, err := w.Write(t.Context(), tools.WriteRequest{Path: "big", Content: strings.Repeat("x", 4<<20), Mode: tools.WriteAppend})
		if err != nil {
			t.Fatal(err)
		}
		full = r.Failure
	}
	if full.Code != tools.ToolNoSpace {
		t.Errorf("a full disk: %+v", full)
	}
	r, err := w.Write(t.Context(), tools.WriteRequest{Path: "src/a.py", Content: strings.Repeat("y", 8<<20)})
	if err != nil || r.Code != tools.ToolNoSpace {
		t.Errorf("a full disk: %+v, %v", r, err)
	}
	read, err := w.Read(t.Context(), tools.ReadRequest{Path: "src/a.py"})
	if wantDone(t, read.Failure, err); read.Content != "import os\nneedle = 42" {
		t.Errorf("what was there is %.40q", read.Content)
	}
}

// swapTree is an agent that keeps exchanging a directory of its workspace with
// a link to one that its user may read, and that the tools must not.
const swapTree = `
import ctypes, os
libc = ctypes.CDLL(None)
os.chdir("/workspace")
os.makedirs("/tmp/other", exist_ok=True)
open("/tmp/other/f", "w").write("OUTSIDE")
os.makedirs("shared", exist_ok=True)
open("shared/f", "w").write("mine")
os.symlink("/tmp/other", "link")
print("ready", flush=True)
while True:
    if libc.renameat2(-100, b"shared", -100, b"link", 2):
        os.rename("shared", "x"); os.rename("link", "shared"); os.rename("x", "link")
`

func TestNativeToolsSwapped(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall)
		cmd := h.command(t.Context(), "exec", name, "--", "python3", "-c", swapTree)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		w, mine := h.tools(t, name), 0
		for range 200 {
			read, err := w.Read(t.Context(), tools.ReadRequest{Path: "shared/f"})
			if err != nil || strings.Contains(read.Content, "OUTSIDE") {
				t.Fatalf("read %+v, %v", read, err)
			}
			if read.Content == "mine" {
				mine++
			}
			lines, err := w.Grep(t.Context(), tools.GrepRequest{Pattern: "OUTSIDE"})
			if err != nil || len(lines.Matches) > 0 {
				t.Fatalf("grep %+v, %v", lines, err)
			}
			if _, err := w.Write(t.Context(), tools.WriteRequest{Path: "shared/f", Content: "mine"}); err != nil {
				t.Fatal(err)
			}
		}
		if mine == 0 {
			t.Error("never was anything read: the test sees nothing")
		}
		t.Logf("%d of 200 reads found the directory", mine)
		if got := h.ok("exec", name, "--", "cat", "/tmp/other/f"); got != "OUTSIDE" {
			t.Errorf("outside has %q", got)
		}
	})
}

// TestAttachments takes files in and out, behind both walls.
func TestAttachments(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall)
		w, ctx := h.tools(t, name), t.Context()
		big := strings.Repeat("x", 3<<20)
		in, err := w.Deliver(ctx, tools.AttachmentsIn{QueryID: "q-1", Files: []tools.Attachment{
			{Name: "../photo of me.png", Data: []byte(big)}, {Name: "notes.txt", Data: []byte("hello")},
		}})
		if err != nil || len(in.Attachments) != 2 || in.Attachments[0].Path != "/workspace/inbox/q-1/photo_of_me.png" {
			t.Fatalf("delivered %+v, %v", in, err)
		}
		h.ok("exec", name, "--", "sh", "-c", "cd /workspace; mkdir -p outbox/q-1/sub; tr a-z A-Z <inbox/q-1/notes.txt >outbox/q-1/sub/notes.txt; "+
			"cp inbox/q-1/photo_of_me.png outbox/q-1/out.png; ln -s /etc/passwd outbox/q-1/passwd")
		if wall == "gvisor" { // the other has no root
			h.ok("exec", "--user", "root", name, "--", "sh", "-c", "cd /workspace/outbox/q-1; mkdir roots; touch roots/f")
		}
		out, err := w.Collect(ctx, "q-1")
		if err != nil || len(out.Attachments) != 2 || !strings.Contains(fmt.Sprint(out.Skipped), "{passwd it is a link}") {
			t.Fatalf("collected %d, without %+v, %v", len(out.Attachments), out.Skipped, err)
		}
		if a := out.Attachments[0]; a.Name != "out.png" || a.Type != tools.KindImage || a.Size != int64(len(big)) {
			t.Errorf("the first is %s, a %s of %d bytes", a.Name, a.Type, a.Size)
		}
		if a := out.Attachments[1]; a.Path != "sub/notes.txt" || a.Base64 != "SEVMTE8=" {
			t.Errorf("the second is %+v", a)
		}
		if by := strings.Contains(fmt.Sprint(out.Notices), "as root"); by != (wall == "gvisor") {
			t.Errorf("notices %q", out.Notices)
		}
		if _, err := w.Purge(ctx); err != nil {
			t.Error(err)
		}
		if got := h.ok("exec", name, "--", "ls", "-A", "/workspace"); got != "" {
			t.Errorf("left: %q", got)
		}
	})
}

// TestNativeToolsByTheDaemon asks by the guest's paths, as any client may.
func TestNativeToolsByTheDaemon(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	name := h.create("--isolation", "process")
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", h.dir+"/run/carboy/carboy.sock")
	}}}
	defer c.CloseIdleConnections()
	post := func(tool, body string) (int, string) {
		resp, err := c.Post("http://carboy/v1/sandboxes/"+name+"/guest/carboy/tools/"+tool, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, tt := range []struct {
		tool, body, want string
		status           int
	}{
		{"write", `{"path":"f","content":"hello"}`, `"created":true`, 200},
		{"read", `{"path":"f"}`, `"content":"hello"`, 200},
		{"read", `{"path":"f","offsets":1}`, `there is no field`, 400},
		{"clear", `{"path":"f"}`, ``, 404},
		{"collect", `{"path":"f"}`, ``, 404},
	} {
		if status, body := post(tt.tool, tt.body); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s", tt.tool, tt.body, status, body)
		}
	}
}

// makeTree makes 100 directories with 100 files of 100 lines each.
const makeTree = `
import os
os.chdir("/workspace")
line = "the quick brown fox jumps over the lazy dog %d\n"
text = "".join(line % i for i in range(100))
for d in range(100):
    os.makedirs("tree/d%02d" % d)
    for f in range(100):
        with open("tree/d%02d/f%02d.txt" % (d, f), "w") as h:
            h.write(text[:400] + ("needle\n" if d == 40 and f == 7 else ""))
`

// BenchmarkNativeTools searches 10,000 files behind both walls.
func BenchmarkNativeTools(b *testing.B) {
	h := newHome(b)
	for _, wall := range wallNames {
		name := h.create("--isolation", wall)
		h.ok("exec", name, "--", "python3", "-c", makeTree)
		w := h.tools(b, name)
		for _, bm := range []struct {
			name string
			run  func() (tools.Failure, error)
		}{
			{"glob", func() (tools.Failure, error) {
				r, err := w.Glob(b.Context(), tools.GlobRequest{Pattern: "*7.txt"})
				return r.Failure, err
			}},
			{"glob-all", func() (tools.Failure, error) {
				r, err := w.Glob(b.Context(), tools.GlobRequest{Pattern: "*"})
				return r.Failure, err
			}},
			{"grep", func() (tools.Failure, error) {
				r, err := w.Grep(b.Context(), tools.GrepRequest{Pattern: "needle"})
				return r.Failure, err
			}},
			{"grep-pattern", func() (tools.Failure, error) {
				r, err := w.Grep(b.Context(), tools.GrepRequest{Pattern: `[n]e+dle\b`})
				return r.Failure, err
			}},
			{"read", func() (tools.Failure, error) {
				r, err := w.Read(b.Context(), tools.ReadRequest{Path: "tree/d40/f07.txt"})
				return r.Failure, err
			}},
			{"write", func() (tools.Failure, error) {
				r, err := w.Write(b.Context(), tools.WriteRequest{Path: "new.txt", Content: "hello\n"})
				return r.Failure, err
			}},
		} {
			b.Run(wall+"/"+bm.name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					f, err := bm.run()
					wantDone(b, f, err)
					took = append(took, time.Since(start))
				}
				report(b, bm.name, took)
			})
		}
	}
}
