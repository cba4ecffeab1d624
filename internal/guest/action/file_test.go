package action_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/action"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
	"github.com/carboy-sandbox/carboy/test/long"
)

func listing(w *world, p string, recursive bool) ([]string, error) {
	w.t.Helper()
	got, err := ask[action.ListFilesReply](w, action.ListFilesRequest{Action: action.ListFiles, Path: p, Recursive: recursive})
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for _, e := range got.Entries {
		target := "-"
		if e.LinkTarget != nil {
			target = *e.LinkTarget
		}
		lines = append(lines, fmt.Sprint(strings.TrimPrefix(e.Path, w.dir+"/"), " ", e.ArtifactType, " ", e.SizeBytes, " ", target))
	}
	return lines, nil
}

func TestListFiles(t *testing.T) {
	most := long.Rounds(2_000, 50_000)
	was, restore := server.ListedForTest(most)
	t.Cleanup(restore)
	if was != 50_000 {
		t.Errorf("a listing has %d entries, want 50,000", was)
	}
	w := open(t)
	must[action.ExecReply](w, action.ExecRequest{Command: `mkdir -p src src-a closed; printf hello >note.txt; printf x >src/child.txt; ln -s note.txt link; mkfifo pipe
		touch closed/in; chmod 0 closed; touch "$(printf 'new\nline')" "$(printf 'b\377d')"`})
	tests := []struct {
		name, path string
		recursive  bool
		want       []string
	}{
		{"flat", "", false, []string{"b\uFFFDd file 0 -", "closed directory 0 -", "link symlink 8 note.txt", "new\nline file 0 -", "note.txt file 5 -", "src directory 0 -", "src-a directory 0 -"}},
		{"recursive", w.dir, true, []string{
			"b\uFFFDd file 0 -", "closed directory 0 -", "link symlink 8 note.txt", "new\nline file 0 -", "note.txt file 5 -", "src directory 0 -", "src-a directory 0 -", "src/child.txt file 1 -",
		}},
		{"file", "note.txt", true, []string{"note.txt file 5 -"}},
		{"link", "link", true, []string{"link symlink 8 note.txt"}},
		{"empty", "src-a", true, []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := listing(w, tt.path, tt.recursive)
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
	for p, words := range map[string]string{"missing": "the path does not exist", "pipe": "neither a file, a directory nor a link", "closed": "permission denied", "note.txt/x": "not a directory"} {
		_, err := listing(w, p, false)
		refused(t, err, words)
	}
	// A listing that is too long is refused, and not cut.
	must[action.ExecReply](w, action.ExecRequest{Command: fmt.Sprintf("mkdir many; cd many; seq %d | xargs touch", most)})
	if got, err := listing(w, "many", true); err != nil || len(got) != most {
		t.Errorf("%d entries: %v", len(got), err)
	}
	must[action.ExecReply](w, action.ExecRequest{Command: "touch many/x"})
	_, err := listing(w, "many", true)
	refused(t, err, fmt.Sprintf("more than %d entries", most))
}

func TestReadFile(t *testing.T) {
	w := open(t)
	must[action.ExecReply](w, action.ExecRequest{Command: `printf 'hello there, you' >text; printf '\377\376' >bytes; printf 'a\303\244\303\244' >umlauts; : >empty
		mkdir dir; mkfifo pipe; ln -s text link; touch closed; chmod 0 closed`})
	b64 := base64.StdEncoding.EncodeToString
	tests := []struct {
		name, path string
		max        int64
		want       action.ReadFileReply // without its path and bound
	}{
		{"whole", "text", 100, action.ReadFileReply{SizeBytes: 16, Content: "hello there, you"}},
		{"just", "text", 16, action.ReadFileReply{SizeBytes: 16, Content: "hello there, you"}},
		{"beginning", "text", 5, action.ReadFileReply{SizeBytes: 16, Content: "hello", Truncated: true}},
		{"bytes", "bytes", 5, action.ReadFileReply{SizeBytes: 2, Content: b64([]byte{255, 254}), Encoding: "base64"}},
		{"cut-character", "umlauts", 4, action.ReadFileReply{SizeBytes: 5, Content: "aä", Truncated: true}},
		{"empty", "empty", 5, action.ReadFileReply{}},
		{"through-a-link", "link", 5, action.ReadFileReply{SizeBytes: 16, Content: "hello", Truncated: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := must[action.ReadFileReply](w, action.ReadFileRequest{Action: action.ReadFile, Path: tt.path, MaxBytes: tt.max})
			tt.want.Path, tt.want.MaxBytes = filepath.Join(w.dir, tt.path), tt.max
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, tt := range []struct {
		path  string
		max   int64
		words string
	}{
		{"text", 0, "max_bytes must be positive"},
		{"text", -1, "max_bytes must be positive"},
		{"text", server.MaxFile + 1, "a reply has room for"},
		{"", 5, "the path is empty"},
		{"missing", 5, "the path does not exist"},
		{"dir", 5, "regular files"},
		{"pipe", 5, "regular files"},
		{"/dev/null", 5, "regular files"},
		{"closed", 5, "permission denied"},
		{"/etc/shadow", 5, "permission denied"},
	} {
		_, err := ask[action.ReadFileReply](w, action.ReadFileRequest{Action: action.ReadFile, Path: tt.path, MaxBytes: tt.max})
		refused(t, err, tt.words)
	}
	// The largest that can be asked for fits, whatever is in it.
	must[action.ExecReply](w, action.ExecRequest{Command: fmt.Sprintf("head -c %d /dev/zero >zeros", server.MaxFile)})
	got := must[action.ReadFileReply](w, action.ReadFileRequest{Action: action.ReadFile, Path: "zeros", MaxBytes: server.MaxFile})
	if len(got.Content) != server.MaxFile || got.Truncated {
		t.Errorf("%d bytes, truncated %v", len(got.Content), got.Truncated)
	}
}

func TestWriteFile(t *testing.T) {
	w := open(t)
	for _, text := range []string{"hello ä\n", "x", ""} {
		got := must[action.WriteFileReply](w, action.WriteFileRequest{Action: action.WriteFile, Path: "a/b/c", Text: text})
		p := filepath.Join(w.dir, "a/b/c")
		if n := int64(len(text)); *got != (action.WriteFileReply{Path: p, SizeBytes: n, BytesWritten: n}) {
			t.Errorf("got %+v", *got)
		}
		if is, err := os.ReadFile(p); err != nil || string(is) != text {
			t.Errorf("it has %q, %v, want %q", is, err, text)
		}
	}
	for p, words := range map[string]string{"": "the path is empty", "a": "directory", "/etc/there": "permission denied", "a/b/c/d": "not a directory", "x\x00": "NUL"} {
		_, err := ask[action.WriteFileReply](w, action.WriteFileRequest{Action: action.WriteFile, Path: p, Text: "x"})
		refused(t, err, words)
	}
}
