package tool_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

func TestWrite(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("old", "a longer content")
	must(t, os.Chmod(w.path("old"), 0o640))
	must(t, os.Link(w.path("old"), w.path("old2")))
	must(t, os.Symlink("old", w.path("link")))
	b64 := func(b ...byte) string { return base64.StdEncoding.EncodeToString(b) }
	for _, tt := range []struct {
		name string
		q    tools.WriteRequest
		file string
		want string
		made bool
	}{
		{"test_write_creates_file", tools.WriteRequest{Path: w.path("new.txt"), Content: "new content"}, "new.txt", "new content", true},
		{"test_write_creates_subdirectories", tools.WriteRequest{Path: "sub/deep/file.txt", Content: "nested"}, "sub/deep/file.txt", "nested", true},
		{"shorter", tools.WriteRequest{Path: "old", Content: "short"}, "old2", "short", false},
		{"longer", tools.WriteRequest{Path: "old", Content: "much longer than it was"}, "old2", "much longer than it was", false},
		{"through-a-link-inside", tools.WriteRequest{Path: "link", Content: "l"}, "old", "l", false},
		{"empty", tools.WriteRequest{Path: "old"}, "old", "", false},
		{"first-bytes", tools.WriteRequest{Path: "blob", Content: b64(0, 1), Encoding: "base64"}, "blob", "\x00\x01", true},
		{"test_write_base64_file_append", tools.WriteRequest{Path: "blob", Content: b64(2, 3), Encoding: "base64", Mode: "append"}, "blob", "\x00\x01\x02\x03", false},
		{"append-to-none", tools.WriteRequest{Path: "log/a", Content: "1\n", Mode: "append"}, "log/a", "1\n", true},
		{"text-in-skills", tools.WriteRequest{Path: ".skills/x/SKILL.md", Content: "s"}, ".skills/x/SKILL.md", "s", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := w.write(tt.q)
			wantOK(t, r.Failure)
			if got := w.text(tt.file); got != tt.want {
				t.Errorf("%s has %q, want %q", tt.file, got, tt.want)
			}
			if r.Created != tt.made || r.SizeBytes != int64(len(tt.want)) || !strings.HasPrefix(r.Path, w.root+"/") {
				t.Errorf("answer %+v", r)
			}
		})
	}
	var st unix.Stat_t
	must(t, unix.Stat(w.path("sub/deep/file.txt"), &st))
	if st.Uid != 1000 || st.Gid != 1000 {
		t.Errorf("a new file is of %d:%d", st.Uid, st.Gid)
	}
	must(t, unix.Stat(w.path("old"), &st))
	if st.Mode&0o777 != 0o640 || st.Nlink != 2 {
		t.Errorf("the old file has mode %o and %d names, want 640 and 2", st.Mode&0o777, st.Nlink)
	}
}

func TestWriteRefuses(t *testing.T) {
	w := newWorld(t, tool.Options{})
	must(t, os.Mkdir(w.path("dir"), 0o755))
	must(t, os.Symlink("nowhere", w.path("dangling")))
	must(t, os.Symlink("/etc", w.path("etc")))
	must(t, os.WriteFile(w.path("roots"), []byte("keep"), 0o644))
	must(t, unix.Mkfifo(w.path("fifo"), 0o666))
	must(t, os.Chmod(w.path("fifo"), 0o666))
	for _, tt := range []struct {
		name, code, part string
		q                tools.WriteRequest
	}{
		{"test_write_base64_rejects_invalid_content", tools.ToolInvalid, "invalid base64", tools.WriteRequest{Path: "x", Content: "not base64!", Encoding: "base64"}},
		{"base64-with-lines", tools.ToolInvalid, "invalid base64", tools.WriteRequest{Path: "x", Content: "AAAA\nAAAA", Encoding: "base64"}},
		{"base64-in-skills", tools.ToolInvalid, "not supported", tools.WriteRequest{Path: ".skills/x/y", Content: "AAAA", Encoding: "base64"}},
		{"root", tools.ToolInvalid, "below", tools.WriteRequest{Path: w.root}},
		{"directory", tools.ToolInvalid, "directory", tools.WriteRequest{Path: "dir"}},
		{"fifo", tools.ToolInvalid, "regular file", tools.WriteRequest{Path: "fifo"}},
		{"dangling", tools.ToolEscapes, "link to nothing", tools.WriteRequest{Path: "dangling"}},
		{"below-a-link-out", tools.ToolEscapes, "escapes", tools.WriteRequest{Path: "etc/passwd", Content: "x"}},
		{"new-below-a-link-out", tools.ToolEscapes, "escapes", tools.WriteRequest{Path: "etc/carboy-new/x", Content: "x"}},
		{"roots-file", tools.ToolDenied, "permission", tools.WriteRequest{Path: "roots", Content: "x"}},
		{"mode", tools.ToolInvalid, "prepend", tools.WriteRequest{Path: "x", Mode: "prepend"}},
		{"encoding", tools.ToolInvalid, "utf-16", tools.WriteRequest{Path: "x", Encoding: "utf-16"}},
		{"too-large", tools.ToolTooLarge, "append", tools.WriteRequest{Path: "x", Content: strings.Repeat("x", tools.MaxWriteBytes+1)}},
	} {
		t.Run(tt.name, func(t *testing.T) { wantFailure(t, w.write(tt.q).Failure, tt.code, tt.part) })
	}
	if _, err := os.Lstat(w.path("x")); err == nil {
		t.Error("a refused write made the file")
	}
	if w.text("roots") != "keep" {
		t.Error("root's file was changed")
	}
}

// TestDiskFull shows that a write for which there is no room loses nothing.
func TestDiskFull(t *testing.T) {
	w := newWorld(t, tool.Options{})
	must(t, unix.Mount("tmpfs", w.root, "tmpfs", 0, "size=1m,mode=777"))
	t.Cleanup(func() { must(t, unix.Unmount(w.root, 0)) })
	big := strings.Repeat("y", 2<<20)
	w.put("old", "precious")
	for _, tt := range []struct {
		name string
		q    tools.WriteRequest
	}{
		{"overwrite", tools.WriteRequest{Path: "old", Content: big}},
		{"append", tools.WriteRequest{Path: "old", Content: big, Mode: "append"}},
		{"new", tools.WriteRequest{Path: "new", Content: big}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantFailure(t, w.write(tt.q).Failure, tools.ToolNoSpace, "no space left")
			if got := w.text("old"); got != "precious" {
				t.Errorf("the file has %.20q", got)
			}
			if _, err := os.Lstat(w.path("new")); err == nil {
				t.Error("what could not be written is there")
			}
		})
	}
	t.Run("edit", func(t *testing.T) {
		w.put("fill", strings.Repeat("z", 900<<10))
		r := w.edit("old", "precious", strings.Repeat("p", 200<<10))
		wantFailure(t, r.Failure, tools.ToolNoSpace, "no space left")
		if got := w.text("old"); got != "precious" {
			t.Errorf("the file has %.20q", got)
		}
	})
	wantOK(t, w.write(tools.WriteRequest{Path: "old", Content: "small"}).Failure) // what was taken is given back
}

func TestEdit(t *testing.T) {
	w := newWorld(t, tool.Options{})
	t.Run("test_edit_replaces_unique_string", func(t *testing.T) {
		w.put("code.py", "def foo():\n    return 1\n")
		r := w.edit(w.path("code.py"), "return 1", "return 42")
		wantOK(t, r.Failure)
		if got := w.text("code.py"); got != "def foo():\n    return 42\n" || r.Line != 2 {
			t.Errorf("line %d of %q", r.Line, got)
		}
	})
	t.Run("test_edit_rejects_ambiguous_match", func(t *testing.T) {
		w.put("dup.txt", "aaa\naaa\n")
		wantFailure(t, w.edit("dup.txt", "aaa", "bbb").Failure, tools.ToolAmbiguous, "2 places")
	})
	t.Run("overlapping", func(t *testing.T) {
		w.put("dup.txt", "aaa")
		wantFailure(t, w.edit("dup.txt", "aa", "b").Failure, tools.ToolAmbiguous, "2 places")
	})
	t.Run("test_edit_rejects_missing_string", func(t *testing.T) {
		wantFailure(t, w.edit("dup.txt", "nope", "yes").Failure, tools.ToolNoMatch, "not found")
	})
	t.Run("empty", func(t *testing.T) {
		wantFailure(t, w.edit("dup.txt", "", "yes").Failure, tools.ToolInvalid, "empty")
	})
	t.Run("no-file", func(t *testing.T) {
		wantFailure(t, w.edit("nowhere", "a", "yes").Failure, tools.ToolNotFound, "not found")
	})
	t.Run("shorter-and-not-text", func(t *testing.T) {
		w.put("bin", "\xff\x00long\xfe")
		wantOK(t, w.edit("bin", "long", "").Failure)
		if got := w.text("bin"); got != "\xff\x00\xfe" {
			t.Errorf("the rest was changed: %q", got)
		}
	})
	t.Run("test_edit_rejects_oversized_host_file", func(t *testing.T) {
		w.put("large", strings.Repeat("x", tools.MaxEditBytes)+"1")
		wantFailure(t, w.edit("large", "1", "x").Failure, tools.ToolTooLarge, "edit limit")
	})
	t.Run("test_box_workspace_edit_script_bounds_file_read_and_replacement", func(t *testing.T) {
		w.put("large", strings.Repeat("x", tools.MaxEditBytes-1)+"1")
		wantFailure(t, w.edit("large", "1", "22").Failure, tools.ToolTooLarge, "edit limit")
		wantOK(t, w.edit("large", "1", "2").Failure) // at the limit it is done
	})
}

// TestEditsAtOnce shows that of edits to one file at once none is lost.
func TestEditsAtOnce(t *testing.T) {
	w := newWorld(t, tool.Options{})
	const n = 32
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "<%d>\n", i)
	}
	w.put("f", text.String())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if r := w.edit("f", fmt.Sprintf("<%d>", i), fmt.Sprintf("[%d]", i)); !r.OK {
				t.Errorf("edit %d: %s", i, r.Error)
			}
		})
	}
	all.Wait()
	if got := w.text("f"); strings.Contains(got, "<") || strings.Count(got, "[") != n {
		t.Errorf("the file has %q", got)
	}
}

// TestWritesAtOnce shows that of writes to one file at once one is left, whole.
func TestWritesAtOnce(t *testing.T) {
	w := newWorld(t, tool.Options{})
	for range 20 {
		w.put("f", "old")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				text := strings.Repeat(fmt.Sprint(i), 1+(i*37)%8*5000)
				if r := w.write(tools.WriteRequest{Path: "f", Content: text}); !r.OK {
					t.Errorf("write %d: %s", i, r.Error)
				}
			})
		}
		all.Wait()
		got := w.text("f")
		i := int(got[0] - '0')
		if len(got) != 1+(i*37)%8*5000 || strings.Trim(got, got[:1]) != "" {
			t.Fatalf("%d bytes, not all of one write", len(got))
		}
	}
}

// TestClear removes what is there, and nothing that a link leads to.
func TestClear(t *testing.T) {
	w := newWorld(t, tool.Options{})
	outside := filepath.Join(filepath.Dir(w.root), "outside")
	must(t, os.Mkdir(outside, 0o777))
	must(t, os.Chmod(outside, 0o777))
	must(t, os.WriteFile(filepath.Join(outside, "f"), nil, 0o666))
	w.put("outbox/1/deep/f", "x")
	must(t, os.Symlink(outside, w.path("outbox/1/link")))
	must(t, os.Symlink(outside, w.path("out")))
	for _, tt := range []struct {
		name, body string
		code       string
		gone, kept string
	}{
		{"keep", `{"path":"outbox/1","keep":true}`, "", "outbox/1/deep", "outbox/1"},
		{"all", `{"path":"outbox"}`, "", "outbox", "."},
		{"nothing-there", `{"path":"none/at/all"}`, "", "none", "."},
		{"nothing-to-keep", `{"path":"none","keep":true}`, "", "none", "."},
		{"below-a-link", `{"path":"out/f"}`, tools.ToolEscapes, "none", "out/f"},
		{"a-link", `{"path":"out"}`, "", "out", "../outside/f"},
		{"root", `{"path":"."}`, tools.ToolInvalid, "none", "."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, b, err := w.post(t.Context(), "clear", "", []byte(tt.body))
			must(t, err)
			if (tt.code == "") != strings.Contains(string(b), `"ok":true`) || !strings.Contains(string(b), tt.code) {
				t.Errorf("answer %s", b)
			}
			if _, err := os.Lstat(w.path(tt.gone)); err == nil {
				t.Errorf("%s is still there", tt.gone)
			}
			if _, err := os.Lstat(w.path(tt.kept)); err != nil {
				t.Error(err)
			}
		})
	}
}
