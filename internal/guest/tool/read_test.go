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

	"github.com/carboy-sandbox/carboy/api/tools"
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
	text := func(content string, first, last int64) tools.ReadResult {
		return tools.ReadResult{
			Failure: tools.Failure{OK: true}, Content: content, MaxBytes: tools.MaxToolBytes,
			TextRange: &tools.TextRange{StartLine: first, EndLine: last, MaxLines: tools.ReadLines},
		}
	}
	cut := func(r tools.ReadResult, by tools.Cause, next *int64, change func(*tools.ReadResult)) tools.ReadResult {
		r.Truncated, r.TruncatedBy, r.NextOffset = true, by, next
		if change != nil {
			change(&r)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		q    tools.ReadRequest
		want tools.ReadResult
	}{
		{"test_read_file", tools.ReadRequest{Path: w.path("hello.txt")}, text("hello world", 1, 1)},
		{"relative", tools.ReadRequest{Path: "hello.txt"}, text("hello world", 1, 1)},
		{
			"test_read_file_supports_offset_limit_and_truncation_metadata",
			tools.ReadRequest{Path: w.path("lines.txt"), Offset: 2, Limit: 2},
			cut(text("two\nthree", 2, 3), tools.ByLines, &four, func(r *tools.ReadResult) { r.MaxLines = 2 }),
		},
		{"to-the-end", tools.ReadRequest{Path: "lines.txt", Offset: 3}, text("three\nfour", 3, 4)},
		{"all-lines", tools.ReadRequest{Path: "lines.txt", Limit: 4}, func() tools.ReadResult {
			r := text("one\ntwo\nthree\nfour", 1, 4)
			r.MaxLines = 4
			return r
		}()},
		{
			"test_read_file_handles_line_larger_than_byte_limit",
			tools.ReadRequest{Path: "long-line.txt", MaxBytes: 3},
			cut(text("[line 1 exceeds the 3B read limit: read it by bytes with the encoding base64, "+
				"use exec to cut it, or read from another offset]", 1, 0), tools.ByBytes, &one, func(r *tools.ReadResult) { r.MaxBytes = 3 }),
		},
		{"before-a-huge-line", tools.ReadRequest{Path: "huge-line"}, cut(text("first", 1, 1), tools.ByBytes, &two, nil)},
		{"behind-a-huge-line", tools.ReadRequest{Path: "huge-line", Offset: 3}, text("last", 3, 3)},
		{"empty", tools.ReadRequest{Path: "empty"}, text("", 1, 0)},
		{"line-ends-stay", tools.ReadRequest{Path: "crlf"}, text("a\r\nb\r", 1, 2)},
		{"no-utf-8", tools.ReadRequest{Path: "bad"}, func() tools.ReadResult {
			r := text("ok\ufffd\ufffd\nmore", 1, 2)
			r.Replaced = true
			return r
		}()},
		{
			"test_read_binary_file_as_base64_chunk",
			tools.ReadRequest{Path: "lines.txt", Encoding: "base64", ByteOffset: 1, MaxBytes: 2},
			tools.ReadResult{
				Failure: tools.Failure{OK: true}, Content: base64.StdEncoding.EncodeToString([]byte("ne")),
				Truncated: true, TruncatedBy: tools.ByBytes, MaxBytes: 2,
				ByteRange: &tools.ByteRange{Encoding: "base64", ByteOffset: 1, Length: 2, SizeBytes: 19, HasMore: true, NextByteOffset: &three},
			},
		},
		{
			"bytes-beyond-the-end",
			tools.ReadRequest{Path: "lines.txt", Encoding: "base64", ByteOffset: 99},
			tools.ReadResult{
				Failure: tools.Failure{OK: true}, MaxBytes: tools.MaxToolBytes,
				ByteRange: &tools.ByteRange{Encoding: "base64", ByteOffset: 99, SizeBytes: 19},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, w.read(tt.q)); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
		})
	}
	r := w.read(tools.ReadRequest{Path: "many", Limit: 1 << 30})
	if r.MaxLines != tools.MaxReadLines || r.EndLine != tools.MaxReadLines || r.TruncatedBy != tools.ByLines {
		t.Errorf("with a limit beyond all: %d lines at most, up to %d, by %s", r.MaxLines, r.EndLine, r.TruncatedBy)
	}
	for _, tt := range []struct {
		name string
		q    tools.ReadRequest
		code string
		part string
	}{
		{"test_read_nonexistent_file", tools.ReadRequest{Path: "no_such.txt"}, tools.ToolNotFound, "not found"},
		{"a-file-as-a-directory", tools.ReadRequest{Path: "hello.txt/x"}, tools.ToolNotFound, "not found"},
		{"test_path_escape_blocked", tools.ReadRequest{Path: w.root + "/../../etc/passwd"}, tools.ToolEscapes, "escapes"},
		{"neighbour", tools.ReadRequest{Path: w.root + "foo"}, tools.ToolEscapes, "escapes"},
		{"no-path", tools.ReadRequest{}, tools.ToolInvalid, "missing"},
		{"nul", tools.ReadRequest{Path: "a\x00b"}, tools.ToolInvalid, "NUL"},
		{"too-long", tools.ReadRequest{Path: strings.Repeat("x/", 3000)}, tools.ToolInvalid, "longer"},
		{"fifo", tools.ReadRequest{Path: "fifo"}, tools.ToolInvalid, "regular file"},
		{"private", tools.ReadRequest{Path: "private"}, tools.ToolDenied, "permission denied"},
		{"negative", tools.ReadRequest{Path: "lines.txt", Offset: -1}, tools.ToolInvalid, "negative"},
		{"unknown-encoding", tools.ReadRequest{Path: "lines.txt", Encoding: "latin1"}, tools.ToolInvalid, "latin1"},
		{"bytes-of-text", tools.ReadRequest{Path: "lines.txt", ByteOffset: 1}, tools.ToolInvalid, "base64"},
		{"beyond-the-end", tools.ReadRequest{Path: "lines.txt", Offset: 5}, tools.ToolInvalid, "has 4 lines"},
		{"far-beyond-the-end", tools.ReadRequest{Path: "lines.txt", Offset: 500}, tools.ToolInvalid, "has 4 lines"},
		{"beyond-an-open-end", tools.ReadRequest{Path: "hello.txt", Offset: 2}, tools.ToolInvalid, "has 1 lines"},
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
		want := tools.ReadResult{
			Failure: tools.Failure{OK: true}, Content: "a.txt\nb\n\ufffd\nsubdir",
			Listing: &tools.Listing{IsDirectory: true, Total: 3},
		}
		if diff := cmp.Diff(want, w.read(tools.ReadRequest{Path: w.root})); diff != "" {
			t.Errorf("mismatch (-want +got):\n%s", diff)
		}
	})
	for i := range tools.MaxDirEntries + 500 {
		must(t, os.WriteFile(w.path(fmt.Sprintf("subdir/%05d", i)), nil, 0o644))
	}
	r := w.read(tools.ReadRequest{Path: "subdir"})
	if !r.Truncated || r.TruncatedBy != tools.ByEntries || r.Total != tools.MaxDirEntries+1 || len(r.Content) > tools.MaxToolBytes {
		t.Errorf("a large directory: %d bytes, %d in all, by %q", len(r.Content), r.Total, r.TruncatedBy)
	}
}

// What is not there is null on the wire, as clients of the original expect.
func TestReadOnTheWire(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("f", "<&>")
	_, b, err := w.post(t.Context(), tools.ToolRead, "", []byte(`{"path":"f"}`))
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
