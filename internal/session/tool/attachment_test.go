package tool_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/tool"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

func TestCleanName(t *testing.T) {
	for _, tt := range []struct{ name, fallback, want string }{
		{"../../etc/passwd", "fb", "passwd"},
		{"/a/b/c.png", "fb", "c.png"},
		{`C:\Users\me\report.pdf`, "fb", "report.pdf"},
		{"a b c.txt", "fb", "a_b_c.txt"},
		{"", "fallback.bin", "fallback.bin"},
		{"...", "fb.bin", "fb.bin"},
		{"..", "fb.bin", "fb.bin"},
		{"-rf", "fb", "rf"},
		{"---", "fb", "fb"},
		{"rm -rf $(x).png", "fb", "rm_-rf_x.png"},
		{"报告 1.pdf", "fb", "报告_1.pdf"},
		{"a\x00b\nc\x1b.txt", "fb", "abc.txt"},
		{"\xff\xfe.txt", "fb", "txt"},
		{strings.Repeat("é", 200) + ".png", "fb", strings.Repeat("é", 88) + ".png"},
	} {
		t.Run("test_sanitize_attachment_name_strips_traversal", func(t *testing.T) {
			if got := tool.CleanName(tt.name, tt.fallback); got != tt.want {
				t.Errorf("CleanName(%q) = %q, want %q", tt.name, got, tt.want)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, text, data, media string
		ok                      bool
	}{
		{"test_component_to_bytes_from_data_uri", "data:text/plain;base64,aGVsbG8=", "hello", "text/plain", true},
		{"plain", "aGVsbG8=", "hello", "application/octet-stream", true},
		{"test_component_to_bytes_returns_none_when_empty", "", "", "", false},
		{"empty-url", "data:text/plain;base64,", "", "", false},
		{"no-base64", "data:text/plain,hello", "", "", false},
		{"test_component_to_bytes_rejects_oversized_base64", strings.Repeat("A", 14<<20), "", "", false},
		{"just-too-large", base64.StdEncoding.EncodeToString(make([]byte, tools.MaxAttachmentBytes+1)), "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, media, ok := tool.Decode(tt.text)
			if string(data) != tt.data || media != tt.media || ok != tt.ok {
				t.Errorf("%q, %q, %v", data, media, ok)
			}
		})
	}
	if data, _, ok := tool.Decode(base64.StdEncoding.EncodeToString(make([]byte, tools.MaxAttachmentBytes))); !ok || len(data) != tools.MaxAttachmentBytes {
		t.Error("as much as may be is refused")
	}
}

func TestQueryIDs(t *testing.T) {
	for _, id := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a\x00", ".hidden", "a b", "a;b", "é", strings.Repeat("x", 129)} {
		_, err := toolspec.Outbox("", id)
		wantKind(t, err, sandbox.Invalid, "query_id")
	}
	t.Run("test_host_attachment_directories_use_query_uuid_not_process_local_id", func(t *testing.T) {
		for id, want := range map[string]string{
			"replica-a-query": "/workspace/outbox/replica-a-query", "7": "/workspace/outbox/7", "a..b": "/workspace/outbox/a..b",
		} {
			if got, err := toolspec.Outbox("", id); err != nil || got != want {
				t.Errorf("Outbox(%q) = %q, %v", id, got, err)
			}
		}
	})
	if got, err := toolspec.Inbox("/data", "7"); err != nil || got != "/data/inbox/7" {
		t.Errorf("Inbox = %q, %v", got, err)
	}
}

func (w *world) deliver(id string, files ...tools.Attachment) tools.AttachmentsDelivered {
	w.t.Helper()
	got, err := w.Deliver(w.t.Context(), tools.AttachmentsIn{QueryID: id, Files: files})
	must(w.t, err)
	return got
}

func TestDeliver(t *testing.T) {
	w := newWorld(t, false)
	big := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 300<<10)
	t.Run("test_materialize_inbound_writes_and_describes", func(t *testing.T) {
		image := tools.Attachment{Type: tools.KindImage, Data: []byte(big)}
		got := w.deliver("query-42", image, attachment("a.txt", "1"), attachment("a.txt", "22"), attachment("x/a.txt", ""))
		at := func(name, kind string, size int64) tools.Delivered {
			return tools.Delivered{Path: w.path("inbox/query-42/" + name), Name: name, Type: kind, Size: size}
		}
		want := tools.AttachmentsDelivered{Attachments: []tools.Delivered{
			at("image_1.png", tools.KindImage, int64(len(big))), at("a.txt", tools.KindFile, 1), at("a-2.txt", tools.KindFile, 2), at("a-3.txt", tools.KindFile, 0),
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if w.text("inbox/query-42/image_1.png") != big || w.text("inbox/query-42/a-2.txt") != "22" {
			t.Error("the files differ")
		}
	})
	t.Run("test_inbound_writes_to_host_no_exec", func(t *testing.T) { // what is too long for a command line
		got := w.deliver("query-43", attachment("big.png", big+big))
		if len(got.Attachments) != 1 || w.text("inbox/query-43/big.png") != big+big {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("test_inbound_host_clears_stale_query_dir", func(t *testing.T) {
		w.deliver("query-42", attachment("new.bin", "new"))
		w.gone("inbox/query-42/image_1.png")
	})
	t.Run("test_materialize_inbound_noop_without_attachments", func(t *testing.T) {
		if got := w.deliver("query-42"); len(got.Attachments) != 0 {
			t.Errorf("got %+v", got)
		}
		if w.text("inbox/query-42/new.bin") != "new" {
			t.Error("something was done")
		}
	})
	t.Run("test_inbound_host_replaces_query_symlink_without_touching_other_workspace", func(t *testing.T) {
		other := filepath.Join(filepath.Dir(w.root), "other")
		must(t, os.Mkdir(other, 0o777))
		must(t, os.Chmod(other, 0o777))
		must(t, os.WriteFile(filepath.Join(other, "protected.txt"), []byte("keep"), 0o666))
		must(t, os.Symlink(other, w.path("inbox/q")))
		w.deliver("q", attachment("input.bin", "mine"))
		if st, err := os.Lstat(w.path("inbox/q")); err != nil || !st.IsDir() || w.text("inbox/q/input.bin") != "mine" {
			t.Errorf("%v, %v", st, err)
		}
		if list, err := os.ReadDir(other); err != nil || len(list) != 1 {
			t.Errorf("the other has %v, %v", list, err)
		}
		// One level up, no link is replaced: it is refused.
		must(t, os.RemoveAll(w.path("inbox")))
		must(t, os.Symlink(other, w.path("inbox")))
		_, err := w.Deliver(t.Context(), tools.AttachmentsIn{QueryID: "q", Files: []tools.Attachment{attachment("input.bin", "mine")}})
		wantKind(t, err, sandbox.Invalid, "link")
		if list, err := os.ReadDir(other); err != nil || len(list) != 1 {
			t.Errorf("the other has %v, %v", list, err)
		}
		must(t, os.Remove(w.path("inbox")))
	})
}

func TestDeliverLimits(t *testing.T) {
	w := newWorld(t, false)
	t.Run("limits", func(t *testing.T) {
		files := []tools.Attachment{attachment("huge", strings.Repeat("x", tools.MaxAttachmentBytes+1))}
		for i := range tools.MaxAttachments + 1 {
			files = append(files, attachment(fmt.Sprintf("f%d", i), "x"))
		}
		got := w.deliver("many", files...)
		want := []tools.SkippedEntry{{Name: "huge", Reason: "it is larger than 10 MiB"}, {Name: "f20", Reason: "there are too many files"}}
		if diff := cmp.Diff(want, got.Skipped); diff != "" || len(got.Attachments) != tools.MaxAttachments {
			t.Errorf("%d delivered (-want +got):\n%s", len(got.Attachments), diff)
		}
		ten := strings.Repeat("x", tools.MaxAttachmentBytes)
		got = w.deliver("large", attachment("a", ten), attachment("b", ten), attachment("c", ten), attachment("d", ten), attachment("e", ten), attachment("f", "x"))
		if len(got.Attachments) != 5 || len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0].Reason, "50 MiB") {
			t.Errorf("%d delivered, without %+v", len(got.Attachments), got.Skipped)
		}
	})
	_, err := w.Deliver(t.Context(), tools.AttachmentsIn{QueryID: "../x", Files: []tools.Attachment{attachment("a", "b")}})
	wantKind(t, err, sandbox.Invalid, "query_id")
	_, err = w.Deliver(t.Context(), tools.AttachmentsIn{QueryID: "x", Files: []tools.Attachment{{Type: "Video"}}})
	wantKind(t, err, sandbox.Invalid, "Video")
}

func (w *world) collect(id string) tools.Collected {
	w.t.Helper()
	got, err := w.Collect(w.t.Context(), id)
	must(w.t, err)
	return got
}

func TestCollect(t *testing.T) {
	w := newWorld(t, false)
	t.Run("test_collect_outbound_reads_and_clears", func(t *testing.T) {
		png := "\x89PNG\r\n\x1a\n" + strings.Repeat("y", 400<<10)
		w.put("outbox/q/chart.png", png)
		w.put("outbox/q/clip.mp3", "B")
		w.put("outbox/q/report.pdf", "C")
		w.put("outbox/q/sub/dir/photo.JPG", "D")
		w.put("outbox/q/sub/report.pdf", "CC")
		w.put("outbox/q/noext", "E")
		w.put("outbox/q/bad\xff\n.txt", "F")
		w.put("outbox/q/empty", "")
		got := w.collect("q")
		b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		want := tools.Collected{
			Attachments: []tools.Outbound{
				{Type: tools.KindFile, Name: "bad\ufffd .txt", Base64: b64("F"), Path: "bad\ufffd .txt", Size: 1},
				{Type: tools.KindImage, Name: "chart.png", Base64: "data:image/png;base64," + b64(png), Path: "chart.png", Size: int64(len(png))},
				{Type: tools.KindVoice, Name: "clip.mp3", Base64: "data:audio/mp3;base64," + b64("B"), Path: "clip.mp3", Size: 1},
				{Type: tools.KindFile, Name: "noext", Base64: b64("E"), Path: "noext", Size: 1},
				{Type: tools.KindFile, Name: "report.pdf", Base64: b64("C"), Path: "report.pdf", Size: 1},
				{Type: tools.KindImage, Name: "photo.JPG", Base64: "data:image/jpeg;base64," + b64("D"), Path: "sub/dir/photo.JPG", Size: 1},
				{Type: tools.KindFile, Name: "report-2.pdf", Base64: b64("CC"), Path: "sub/report.pdf", Size: 2},
			},
			Skipped: []tools.SkippedEntry{{Name: "empty", Reason: "it is empty"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("test_classify_outbound_entries_by_extension (-want +got):\n%s", diff)
		}
		if list, err := os.ReadDir(w.path("outbox/q")); err != nil || len(list) != 0 {
			t.Errorf("the outbox has %v, %v", list, err)
		}
	})
	t.Run("test_outbound_reads_host_and_clears", func(t *testing.T) {
		big := strings.Repeat("z", 4<<20)
		w.put("outbox/q/result.png", big)
		got := w.collect("q")
		data, mediaType, ok := tool.Decode(got.Attachments[0].Base64)
		if !ok || string(data) != big || mediaType != "image/png" {
			t.Errorf("%d bytes of %q", len(data), mediaType)
		}
		w.gone("outbox/q/result.png")
	})
	t.Run("test_collect_outbound_empty_still_clears", func(t *testing.T) {
		must(t, os.Mkdir(w.path("outbox/q/deep"), 0o755))
		must(t, os.Chown(w.path("outbox/q/deep"), 1000, 1000))
		if got := w.collect("q"); len(got.Attachments) != 0 {
			t.Errorf("got %+v", got)
		}
		w.gone("outbox/q/deep")
	})
	t.Run("no-outbox", func(t *testing.T) {
		if got := w.collect("never"); len(got.Attachments) != 0 || len(got.Notices) != 0 {
			t.Errorf("got %+v", got)
		}
		w.gone("outbox/never")
	})
	t.Run("test_outbound_empty_clears_stale_host_dir", func(t *testing.T) {
		w.put("outbox/q/stale.png", "x")
		if got := w.collect("q"); len(got.Attachments) != 1 {
			t.Errorf("got %+v", got)
		}
		if got := w.collect("q"); len(got.Attachments) != 0 {
			t.Errorf("it came twice: %+v", got)
		}
	})
}

func TestCollectRefuses(t *testing.T) {
	w := newWorld(t, false)
	t.Run("test_outbound_host_never_follows_query_or_file_symlinks", func(t *testing.T) {
		secret := filepath.Join(filepath.Dir(w.root), "secret")
		must(t, os.Mkdir(secret, 0o755))
		must(t, os.WriteFile(filepath.Join(secret, "f"), []byte("SECRET"), 0o644))
		w.put("outbox/q/mine", "x")
		must(t, os.Symlink(secret, w.path("outbox/link")))
		_, err := w.Collect(t.Context(), "link")
		wantKind(t, err, sandbox.Invalid, "symbolic link")
		must(t, os.Symlink(filepath.Join(secret, "f"), w.path("outbox/q/leak.txt")))
		must(t, os.Symlink(secret, w.path("outbox/q/leaks")))
		got := w.collect("q")
		if len(got.Attachments) != 1 || len(got.Skipped) != 2 || strings.Contains(got.Attachments[0].Base64, "U0VDUkVU") {
			t.Errorf("got %+v", got)
		}
		if b, err := os.ReadFile(filepath.Join(secret, "f")); err != nil || string(b) != "SECRET" {
			t.Errorf("emptying the outbox changed what a link led to: %q, %v", b, err)
		}
	})
	t.Run("test_outbound_host_fails_closed_on_inode_bomb", func(t *testing.T) {
		must(t, os.MkdirAll(w.path("outbox/bomb"), 0o755))
		for i := range tools.OutboxEntries + 1 {
			must(t, os.Symlink("/etc", w.path(fmt.Sprintf("outbox/bomb/entry-%d", i))))
		}
		_, err := w.Collect(t.Context(), "bomb")
		wantKind(t, err, sandbox.Exhausted, "512")
	})
	t.Run("limits", func(t *testing.T) {
		w.put("outbox/q/a-huge", strings.Repeat("x", tools.MaxAttachmentBytes+1))
		for i := range tools.MaxAttachments + 1 {
			w.put(fmt.Sprintf("outbox/q/f%02d", i), "x")
		}
		got := w.collect("q")
		want := []tools.SkippedEntry{{Name: "a-huge", Reason: "it is larger than 10 MiB"}, {Name: "f20", Reason: "there are too many files"}}
		if diff := cmp.Diff(want, got.Skipped); diff != "" || len(got.Attachments) != tools.MaxAttachments {
			t.Errorf("%d collected (-want +got):\n%s", len(got.Attachments), diff)
		}
		for i := range 6 {
			w.put(fmt.Sprintf("outbox/q/f%d", i), strings.Repeat("x", tools.MaxAttachmentBytes-i))
		}
		got = w.collect("q")
		if len(got.Attachments) != 5 || len(got.Skipped) != 1 || !strings.Contains(got.Skipped[0].Reason, "50 MiB") {
			t.Errorf("%d collected, without %+v", len(got.Attachments), got.Skipped)
		}
		w.put("outbox/q/"+strings.Repeat("d/", tools.OutboxDepth)+"f", "x")
		_, err := w.Collect(t.Context(), "q")
		wantKind(t, err, sandbox.Exhausted, "within each other")
	})
}

// What root left inside is removed as root where the sandbox has one, and
// nowhere else.
func TestLeftByRoot(t *testing.T) {
	leave := func(w *world) {
		w.put("outbox/q/mine", "x")
		must(t, os.MkdirAll(w.path("outbox/q/roots"), 0o755))
		must(t, os.WriteFile(w.path("outbox/q/roots/f"), []byte("r"), 0o644))
	}
	w := newWorld(t, true)
	leave(w)
	got, err := w.Collect(t.Context(), "q")
	if err != nil || len(got.Attachments) != 2 || len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "as root") {
		t.Errorf("got %+v, %v", got, err)
	}
	w.gone("outbox/q")

	w = newWorld(t, false)
	leave(w)
	got, err = w.Collect(t.Context(), "q")
	if err != nil || len(got.Attachments) != 2 || len(got.Notices) != 1 || !strings.Contains(got.Notices[0], "may come again") {
		t.Errorf("without root: %+v, %v", got, err)
	}
	if w.text("outbox/q/roots/f") != "r" {
		t.Error("it is gone all the same")
	}
	t.Run("test_purge_attachment_dirs_never_uses_unscoped_exec_for_root_owned", func(t *testing.T) {
		_, err := w.Purge(t.Context())
		wantKind(t, err, sandbox.Denied, "outbox")
	})
}

func TestPurge(t *testing.T) {
	w := newWorld(t, false)
	t.Run("test_purge_attachment_dirs_noop_without_workspace", func(t *testing.T) {
		if n, err := w.Purge(t.Context()); err != nil || len(n) != 0 {
			t.Errorf("%q, %v", n, err)
		}
	})
	t.Run("test_purge_attachment_dirs_wipes_host_owned_leftovers_on_init", func(t *testing.T) {
		w.put("inbox/0/leftover", "x")
		w.put("outbox/0/leftover", "x")
		w.put("work", "x")
		_, err := w.Purge(t.Context())
		must(t, err)
		w.gone("inbox")
		w.gone("outbox")
		if w.text("work") != "x" {
			t.Error("more was removed")
		}
	})
}

// FuzzUnpack reads an archive of a hostile guest's.
func FuzzUnpack(f *testing.F) {
	for _, a := range archives(f) {
		if len(a.bytes) < 1<<20 {
			f.Add(a.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := tool.Unpack(bytes.NewReader(b))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, a := range got.Attachments {
			if a.Name == "" || strings.ContainsAny(a.Name, "/\n\x00") || seen[a.Name] || a.Size > tools.MaxAttachmentBytes {
				t.Errorf("an attachment %q of %d bytes", a.Name, a.Size)
			}
			seen[a.Name] = true
		}
	})
}

func TestUnpack(t *testing.T) {
	for _, a := range archives(t) {
		t.Run(a.name, func(t *testing.T) {
			_, err := tool.Unpack(bytes.NewReader(a.bytes))
			if (err == nil) != a.ok {
				t.Errorf("unpack = %v", err)
			}
		})
	}
}
