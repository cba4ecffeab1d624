package tool_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

func TestRead(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("hello.txt", "hello world")
	w.put("lines.txt", "one\ntwo\nthree\nfour\n")
	w.put("long-line.txt", "abcdef\n")
	w.put("empty", "")
	w.put("crlf", "a\r\nb\r\n")
	w.put("bad", "ok\xff\xfe\nmore\n")
	w.put("huge-line", "first\n"+strings.Repeat("x", 3<<20)+"\nlast\n")
	w.put("many", strings.Repeat("l\n", 12_000))
	must(t, syscall.Mkfifo(w.path("fifo"), 0o666))
	must(t, os.WriteFile(w.path("private"), []byte("x"), 0o600))
	four, one, two, three := int64(4), int64(1), int64(2), int64(3)
	text := func(content string, first, last int64) box.ReadResult {
		return box.ReadResult{
			Failure: box.Failure{OK: true}, Content: content, MaxBytes: box.MaxToolBytes,
			TextRange: &box.TextRange{StartLine: first, EndLine: last, MaxLines: box.ReadLines},
		}
	}
	cut := func(r box.ReadResult, by box.Cause, next *int64, change func(*box.ReadResult)) box.ReadResult {
		r.Truncated, r.TruncatedBy, r.NextOffset = true, by, next
		if change != nil {
			change(&r)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		q    box.ReadRequest
		want box.ReadResult
	}{
		{"test_read_file", box.ReadRequest{Path: w.path("hello.txt")}, text("hello world", 1, 1)},
		{"relative", box.ReadRequest{Path: "hello.txt"}, text("hello world", 1, 1)},
		{
			"test_read_file_supports_offset_limit_and_truncation_metadata",
			box.ReadRequest{Path: w.path("lines.txt"), Offset: 2, Limit: 2},
			cut(text("two\nthree", 2, 3), box.ByLines, &four, func(r *box.ReadResult) { r.MaxLines = 2 }),
		},
		{"to-the-end", box.ReadRequest{Path: "lines.txt", Offset: 3}, text("three\nfour", 3, 4)},
		{"all-lines", box.ReadRequest{Path: "lines.txt", Limit: 4}, func() box.ReadResult {
			r := text("one\ntwo\nthree\nfour", 1, 4)
			r.MaxLines = 4
			return r
		}()},
		{
			"test_read_file_handles_line_larger_than_byte_limit",
			box.ReadRequest{Path: "long-line.txt", MaxBytes: 3},
			cut(text("[line 1 exceeds the 3B read limit: read it by bytes with the encoding base64, "+
				"use exec to cut it, or read from another offset]", 1, 0), box.ByBytes, &one, func(r *box.ReadResult) { r.MaxBytes = 3 }),
		},
		{"before-a-huge-line", box.ReadRequest{Path: "huge-line"}, cut(text("first", 1, 1), box.ByBytes, &two, nil)},
		{"behind-a-huge-line", box.ReadRequest{Path: "huge-line", Offset: 3}, text("last", 3, 3)},
		{"empty", box.ReadRequest{Path: "empty"}, text("", 1, 0)},
		{"line-ends-stay", box.ReadRequest{Path: "crlf"}, text("a\r\nb\r", 1, 2)},
		{"no-utf-8", box.ReadRequest{Path: "bad"}, func() box.ReadResult {
			r := text("ok\ufffd\ufffd\nmore", 1, 2)
			r.Replaced = true
			return r
		}()},
		{
			"test_read_binary_file_as_base64_chunk",
			box.ReadRequest{Path: "lines.txt", Encoding: "base64", ByteOffset: 1, MaxBytes: 2},
			box.ReadResult{
				Failure: box.Failure{OK: true}, Content: base64.StdEncoding.EncodeToString([]byte("ne")),
				Truncated: true, TruncatedBy: box.ByBytes, MaxBytes: 2,
				ByteRange: &box.ByteRange{Encoding: "base64", ByteOffset: 1, Length: 2, SizeBytes: 19, HasMore: true, NextByteOffset: &three},
			},
		},
		{
			"bytes-beyond-the-end",
			box.ReadRequest{Path: "lines.txt", Encoding: "base64", ByteOffset: 99},
			box.ReadResult{
				Failure: box.Failure{OK: true}, MaxBytes: box.MaxToolBytes,
				ByteRange: &box.ByteRange{Encoding: "base64", ByteOffset: 99, SizeBytes: 19},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, w.read(tt.q)); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
		})
	}
	r := w.read(box.ReadRequest{Path: "many", Limit: 1 << 30})
	if r.MaxLines != box.MaxReadLines || r.EndLine != box.MaxReadLines || r.TruncatedBy != box.ByLines {
		t.Errorf("with a limit beyond all: %d lines at most, up to %d, by %s", r.MaxLines, r.EndLine, r.TruncatedBy)
	}
	for _, tt := range []struct {
		name string
		q    box.ReadRequest
		code string
		part string
	}{
		{"test_read_nonexistent_file", box.ReadRequest{Path: "no_such.txt"}, box.ToolNotFound, "not found"},
		{"a-file-as-a-directory", box.ReadRequest{Path: "hello.txt/x"}, box.ToolNotFound, "not found"},
		{"test_path_escape_blocked", box.ReadRequest{Path: w.root + "/../../etc/passwd"}, box.ToolEscapes, "escapes"},
		{"neighbour", box.ReadRequest{Path: w.root + "foo"}, box.ToolEscapes, "escapes"},
		{"no-path", box.ReadRequest{}, box.ToolInvalid, "missing"},
		{"nul", box.ReadRequest{Path: "a\x00b"}, box.ToolInvalid, "NUL"},
		{"too-long", box.ReadRequest{Path: strings.Repeat("x/", 3000)}, box.ToolInvalid, "longer"},
		{"fifo", box.ReadRequest{Path: "fifo"}, box.ToolInvalid, "regular file"},
		{"private", box.ReadRequest{Path: "private"}, box.ToolDenied, "permission denied"},
		{"negative", box.ReadRequest{Path: "lines.txt", Offset: -1}, box.ToolInvalid, "negative"},
		{"unknown-encoding", box.ReadRequest{Path: "lines.txt", Encoding: "latin1"}, box.ToolInvalid, "latin1"},
		{"bytes-of-text", box.ReadRequest{Path: "lines.txt", ByteOffset: 1}, box.ToolInvalid, "base64"},
		{"beyond-the-end", box.ReadRequest{Path: "lines.txt", Offset: 5}, box.ToolInvalid, "has 4 lines"},
		{"far-beyond-the-end", box.ReadRequest{Path: "lines.txt", Offset: 500}, box.ToolInvalid, "has 4 lines"},
		{"beyond-an-open-end", box.ReadRequest{Path: "hello.txt", Offset: 2}, box.ToolInvalid, "has 1 lines"},
	} {
		t.Run(tt.name, func(t *testing.T) { wantFailure(t, w.read(tt.q).Failure, tt.code, tt.part) })
	}
}

func TestReadDirectory(t *testing.T) {
	w := newWorld(t, tool.Options{})
	must(t, os.Mkdir(w.path("subdir"), 0o755))
	w.put("a.txt", "a")
	w.put("b\n\xff", "")
	t.Run("test_read_directory", func(t *testing.T) {
		want := box.ReadResult{
			Failure: box.Failure{OK: true}, Content: "a.txt\nb\n\ufffd\nsubdir",
			Listing: &box.Listing{IsDirectory: true, Total: 3},
		}
		if diff := cmp.Diff(want, w.read(box.ReadRequest{Path: w.root})); diff != "" {
			t.Errorf("mismatch (-want +got):\n%s", diff)
		}
	})
	for i := range box.MaxDirEntries + 500 {
		must(t, os.WriteFile(w.path(fmt.Sprintf("subdir/%05d", i)), nil, 0o644))
	}
	r := w.read(box.ReadRequest{Path: "subdir"})
	if !r.Truncated || r.TruncatedBy != box.ByEntries || r.Total != box.MaxDirEntries+1 || len(r.Content) > box.MaxToolBytes {
		t.Errorf("a large directory: %d bytes, %d in all, by %q", len(r.Content), r.Total, r.TruncatedBy)
	}
}

// What is not there is null on the wire, as clients of the original expect.
func TestReadOnTheWire(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("f", "<&>")
	_, b, err := w.post(t.Context(), box.ToolRead, "", []byte(`{"path":"f"}`))
	must(t, err)
	var got, want map[string]any
	must(t, json.Unmarshal(b, &got))
	must(t, json.Unmarshal([]byte(`{"ok":true,"content":"<&>","truncated":false,"truncated_by":null,"start_line":1,
		"end_line":1,"next_offset":null,"max_lines":2000,"max_bytes":51200}`), &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(b), "<&>") {
		t.Errorf("the answer blows up what is no HTML: %s", b)
	}
}
