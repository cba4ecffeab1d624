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

	"github.com/carboy-sandbox/carboy/api/langbot"
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
	text := func(content string, first, last int64) langbot.ReadResult {
		return langbot.ReadResult{
			Failure: langbot.Failure{OK: true}, Content: content, MaxBytes: langbot.MaxToolBytes,
			TextRange: &langbot.TextRange{StartLine: first, EndLine: last, MaxLines: langbot.ReadLines},
		}
	}
	cut := func(r langbot.ReadResult, by langbot.Cause, next *int64, change func(*langbot.ReadResult)) langbot.ReadResult {
		r.Truncated, r.TruncatedBy, r.NextOffset = true, by, next
		if change != nil {
			change(&r)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		q    langbot.ReadRequest
		want langbot.ReadResult
	}{
		{"test_read_file", langbot.ReadRequest{Path: w.path("hello.txt")}, text("hello world", 1, 1)},
		{"relative", langbot.ReadRequest{Path: "hello.txt"}, text("hello world", 1, 1)},
		{
			"test_read_file_supports_offset_limit_and_truncation_metadata",
			langbot.ReadRequest{Path: w.path("lines.txt"), Offset: 2, Limit: 2},
			cut(text("two\nthree", 2, 3), langbot.ByLines, &four, func(r *langbot.ReadResult) { r.MaxLines = 2 }),
		},
		{"to-the-end", langbot.ReadRequest{Path: "lines.txt", Offset: 3}, text("three\nfour", 3, 4)},
		{"all-lines", langbot.ReadRequest{Path: "lines.txt", Limit: 4}, func() langbot.ReadResult {
			r := text("one\ntwo\nthree\nfour", 1, 4)
			r.MaxLines = 4
			return r
		}()},
		{
			"test_read_file_handles_line_larger_than_byte_limit",
			langbot.ReadRequest{Path: "long-line.txt", MaxBytes: 3},
			cut(text("[line 1 exceeds the 3B read limit: read it by bytes with the encoding base64, "+
				"use exec to cut it, or read from another offset]", 1, 0), langbot.ByBytes, &one, func(r *langbot.ReadResult) { r.MaxBytes = 3 }),
		},
		{"before-a-huge-line", langbot.ReadRequest{Path: "huge-line"}, cut(text("first", 1, 1), langbot.ByBytes, &two, nil)},
		{"behind-a-huge-line", langbot.ReadRequest{Path: "huge-line", Offset: 3}, text("last", 3, 3)},
		{"empty", langbot.ReadRequest{Path: "empty"}, text("", 1, 0)},
		{"line-ends-stay", langbot.ReadRequest{Path: "crlf"}, text("a\r\nb\r", 1, 2)},
		{"no-utf-8", langbot.ReadRequest{Path: "bad"}, func() langbot.ReadResult {
			r := text("ok\ufffd\ufffd\nmore", 1, 2)
			r.Replaced = true
			return r
		}()},
		{
			"test_read_binary_file_as_base64_chunk",
			langbot.ReadRequest{Path: "lines.txt", Encoding: "base64", ByteOffset: 1, MaxBytes: 2},
			langbot.ReadResult{
				Failure: langbot.Failure{OK: true}, Content: base64.StdEncoding.EncodeToString([]byte("ne")),
				Truncated: true, TruncatedBy: langbot.ByBytes, MaxBytes: 2,
				ByteRange: &langbot.ByteRange{Encoding: "base64", ByteOffset: 1, Length: 2, SizeBytes: 19, HasMore: true, NextByteOffset: &three},
			},
		},
		{
			"bytes-beyond-the-end",
			langbot.ReadRequest{Path: "lines.txt", Encoding: "base64", ByteOffset: 99},
			langbot.ReadResult{
				Failure: langbot.Failure{OK: true}, MaxBytes: langbot.MaxToolBytes,
				ByteRange: &langbot.ByteRange{Encoding: "base64", ByteOffset: 99, SizeBytes: 19},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, w.read(tt.q)); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
		})
	}
	r := w.read(langbot.ReadRequest{Path: "many", Limit: 1 << 30})
	if r.MaxLines != langbot.MaxReadLines || r.EndLine != langbot.MaxReadLines || r.TruncatedBy != langbot.ByLines {
		t.Errorf("with a limit beyond all: %d lines at most, up to %d, by %s", r.MaxLines, r.EndLine, r.TruncatedBy)
	}
	for _, tt := range []struct {
		name string
		q    langbot.ReadRequest
		code string
		part string
	}{
		{"test_read_nonexistent_file", langbot.ReadRequest{Path: "no_such.txt"}, langbot.ToolNotFound, "not found"},
		{"a-file-as-a-directory", langbot.ReadRequest{Path: "hello.txt/x"}, langbot.ToolNotFound, "not found"},
		{"test_path_escape_blocked", langbot.ReadRequest{Path: w.root + "/../../etc/passwd"}, langbot.ToolEscapes, "escapes"},
		{"neighbour", langbot.ReadRequest{Path: w.root + "foo"}, langbot.ToolEscapes, "escapes"},
		{"no-path", langbot.ReadRequest{}, langbot.ToolInvalid, "missing"},
		{"nul", langbot.ReadRequest{Path: "a\x00b"}, langbot.ToolInvalid, "NUL"},
		{"too-long", langbot.ReadRequest{Path: strings.Repeat("x/", 3000)}, langbot.ToolInvalid, "longer"},
		{"fifo", langbot.ReadRequest{Path: "fifo"}, langbot.ToolInvalid, "regular file"},
		{"private", langbot.ReadRequest{Path: "private"}, langbot.ToolDenied, "permission denied"},
		{"negative", langbot.ReadRequest{Path: "lines.txt", Offset: -1}, langbot.ToolInvalid, "negative"},
		{"unknown-encoding", langbot.ReadRequest{Path: "lines.txt", Encoding: "latin1"}, langbot.ToolInvalid, "latin1"},
		{"bytes-of-text", langbot.ReadRequest{Path: "lines.txt", ByteOffset: 1}, langbot.ToolInvalid, "base64"},
		{"beyond-the-end", langbot.ReadRequest{Path: "lines.txt", Offset: 5}, langbot.ToolInvalid, "has 4 lines"},
		{"far-beyond-the-end", langbot.ReadRequest{Path: "lines.txt", Offset: 500}, langbot.ToolInvalid, "has 4 lines"},
		{"beyond-an-open-end", langbot.ReadRequest{Path: "hello.txt", Offset: 2}, langbot.ToolInvalid, "has 1 lines"},
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
		want := langbot.ReadResult{
			Failure: langbot.Failure{OK: true}, Content: "a.txt\nb\n\ufffd\nsubdir",
			Listing: &langbot.Listing{IsDirectory: true, Total: 3},
		}
		if diff := cmp.Diff(want, w.read(langbot.ReadRequest{Path: w.root})); diff != "" {
			t.Errorf("mismatch (-want +got):\n%s", diff)
		}
	})
	for i := range langbot.MaxDirEntries + 500 {
		must(t, os.WriteFile(w.path(fmt.Sprintf("subdir/%05d", i)), nil, 0o644))
	}
	r := w.read(langbot.ReadRequest{Path: "subdir"})
	if !r.Truncated || r.TruncatedBy != langbot.ByEntries || r.Total != langbot.MaxDirEntries+1 || len(r.Content) > langbot.MaxToolBytes {
		t.Errorf("a large directory: %d bytes, %d in all, by %q", len(r.Content), r.Total, r.TruncatedBy)
	}
}

// What is not there is null on the wire, as clients of the original expect.
func TestReadOnTheWire(t *testing.T) {
	w := newWorld(t, tool.Options{})
	w.put("f", "<&>")
	_, b, err := w.post(t.Context(), langbot.ToolRead, "", []byte(`{"path":"f"}`))
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
