package instance

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// files makes a tree of files that everybody may read, but those whose name is "private".
func files(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		p, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if strings.HasSuffix(name, "private") {
			mode = 0o600
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
}

// looked answers an order, and returns the paths and the notes.
func looked(t *testing.T, o diskOrder) (paths string, notes string, err error) {
	t.Helper()
	v, done, err := o.view()
	if err != nil {
		return "", "", err
	}
	defer done()
	var out strings.Builder
	if err := o.answer(t.Context(), v, &out); err != nil {
		return "", "", err
	}
	if o.Do == diskRead {
		return out.String(), "", nil
	}
	var list api.DiskListing
	if err := json.Unmarshal([]byte(out.String()), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list.Entries {
		names = append(names, e.Path)
	}
	return strings.Join(names, " "), strings.Join(list.Notes, "; "), nil
}

// openDirs is a directory that everybody gets to, unlike t.TempDir's.
func openDirs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-disk-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestDiskOfDirectories: the layers of a disk that is a directory, over those of the host.
func TestDiskOfDirectories(t *testing.T) {
	dir := openDirs(t)
	box, host := filepath.Join(dir, "box"), filepath.Join(dir, "host")
	own := filepath.Join(box, dirLayers)
	files(t, own, "root/upper/etc/new", "root/upper/run/x", "root/work/work/#1", "part-usr/upper/own", "workspace/f", "own/"+Dir{Target: "/cache"}.Share()+"/c")
	files(t, host, "image/etc/old", "image/hidden/x", "usr/bin/ls", "usr/private", "saved/root/etc/kept")
	if err := os.Chmod(filepath.Join(host, "usr/private"), 0o600); err != nil {
		t.Fatal(err)
	}
	order := diskOrder{Dir: box, Do: diskList, Path: "/", Recurse: true, Mounts: []diskMount{
		{Path: "/", Layers: []diskLayer{{Own: "root/upper"}, {Host: Dir{Source: host + "/saved/root"}}, {Host: Dir{Source: host + "/image"}}, {Host: Dir{Source: host + "/gone"}}}},
		{Path: "/hidden"},
		{Path: "/usr", Layers: []diskLayer{{Own: "part-usr/upper"}, {Host: Dir{Source: host + "/usr", UID: nobody, GID: nobody}, Reader: true}}},
		{Path: "/usr/tool", Note: "it is a directory of the host, shown read-only"},
		(&Layout{}).seenWorkspace(sandbox.Workspace{Mode: sandbox.WorkspacePrivate}),
		seenMount(sandbox.Mount{Target: "/cache", Own: true}),
		seenMount(sandbox.Mount{Target: "/data", Volume: "vol_x"}),
	}}
	got, notes, err := looked(t, order)
	const want = "/cache /cache/c /data /etc /etc/kept /etc/new /etc/old /hidden /run /run/x /usr /usr/bin /usr/bin/ls /usr/own /usr/private /usr/tool /workspace /workspace/f"
	if err != nil || got != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	for _, note := range []string{host + "/gone is not at hand", "/usr/tool: it is a directory of the host", "/data: it is the volume vol_x"} {
		if !strings.Contains(notes, note) {
			t.Errorf("the notes are %q, without %q", notes, note)
		}
	}
	order.Do, order.MaxBytes = diskRead, 100
	if order.Path = "/usr/bin/ls"; true {
		if got, _, err := looked(t, order); err != nil || !strings.Contains(got, `"content":"usr/bin/ls"`) {
			t.Errorf("read %s, %v", got, err)
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	order.Path = "/usr/private"
	if got, _, err := looked(t, order); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("what only root may read of the host's: %s, %v", got, err)
	}
	order.Mounts[2].Layers[1].Reader = false // negative control
	if got, _, err := looked(t, order); err != nil {
		t.Errorf("read by root: %s, %v", got, err)
	}
}

// TestDiskOfView: a view's directory is the one that was named at create, and read by its owner's rights;
// what is mounted read-write is not shown.
func TestDiskOfView(t *testing.T) {
	dir := openDirs(t)
	box, host := filepath.Join(dir, "box"), filepath.Join(dir, "host")
	files(t, filepath.Join(box, dirLayers), "root/upper/x", "workspace/upper/new")
	files(t, host, "old", "private")
	var st unix.Stat_t
	if err := unix.Stat(host, &st); err != nil {
		t.Fatal(err)
	}
	w := sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: sandbox.HostDir{Path: host, Dev: st.Dev, Ino: st.Ino, UID: 12345, GID: 12345}}
	order := diskOrder{Dir: box, Do: diskList, Path: "/workspace", Mounts: []diskMount{
		{Path: "/", Layers: []diskLayer{{Own: "root/upper"}}}, (&Layout{}).seenWorkspace(w),
	}}
	if got, notes, err := looked(t, order); err != nil || got != "/workspace/new /workspace/old /workspace/private" || notes != "" {
		t.Errorf("got %s, %q, %v", got, notes, err)
	}
	if os.Geteuid() == 0 {
		order.Do, order.Path, order.MaxBytes = diskRead, "/workspace/private", 10
		if got, _, err := looked(t, order); sandbox.KindOf(err) != sandbox.Denied {
			t.Errorf("what its owner may not read: %s, %v", got, err)
		}
		order.Do, order.Path = diskList, "/workspace"
	}
	w.Source.Ino++
	order.Mounts[1] = (&Layout{}).seenWorkspace(w)
	if got, notes, err := looked(t, order); err != nil || got != "/workspace/new" || !strings.Contains(notes, "not the directory that was named at create") {
		t.Errorf("of another directory: %s, %q, %v", got, notes, err)
	}
	w.Mode = sandbox.WorkspaceWritable
	order.Mounts[1] = (&Layout{}).seenWorkspace(w)
	if got, notes, err := looked(t, order); err != nil || got != "" || !strings.Contains(notes, "it is the directory "+host+" of the host") {
		t.Errorf("read-write: %s, %q, %v", got, notes, err)
	}
	if _, err := os.Stat(filepath.Join(box, dirLayers, layerWorkspace, copyTree)); err == nil {
		t.Error("there is a copy")
	}
	files(t, filepath.Join(box, dirLayers), "workspace/copy/copied")
	w.Mode = sandbox.WorkspaceCOW
	order.Mounts[1] = (&Layout{}).seenWorkspace(w)
	if got, notes, err := looked(t, order); err != nil || got != "/workspace/copied" || notes != "" {
		t.Errorf("a copy: %s, %q, %v", got, notes, err)
	}
}

// TestDiskOfRenamed: what was renamed in a view is read by the rights of the directory's owner too, for the
// kernel copied it with root's, and a disk that has it is not given away.
func TestDiskOfRenamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make files of others")
	}
	dir := openDirs(t)
	box, host := filepath.Join(dir, "box"), filepath.Join(dir, "host")
	upper := filepath.Join(box, dirLayers, "workspace/upper")
	files(t, filepath.Join(box, dirLayers), "root/upper/x", "workspace/upper/new", "workspace/upper/dir/taken", "workspace/upper/shared",
		"workspace/upper/closed/f", "workspace/upper/made/f")
	files(t, host, "old")
	for _, name := range []string{"closed", "made"} { // root's; the first came from the host
		if err := os.Chmod(filepath.Join(upper, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(filepath.Join(upper, "closed"), "trusted.overlay.origin", nil, 0); err != nil {
		t.Skipf("no trusted attributes here: %v", err)
	}
	for name, mode := range map[string]os.FileMode{"new": 0o600, "dir/taken": 0o600, "shared": 0o644} {
		if err := os.Chmod(filepath.Join(upper, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(upper, "new"), guestUID, guestGID); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(host, &st); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []uint32{12345, 0} { // root's directory is the control
		w := sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: sandbox.HostDir{Path: host, Dev: st.Dev, Ino: st.Ino, UID: owner, GID: owner}}
		order := diskOrder{Dir: box, Do: diskRead, MaxBytes: 100, Others: owner != 0, Mounts: []diskMount{
			{Path: "/", Layers: []diskLayer{{Own: "root/upper"}}}, (&Layout{}).seenWorkspace(w),
		}}
		for _, name := range []string{"new", "shared", "made/f", "dir/taken", "closed/f"} {
			order.Path = "/workspace/" + name
			got, _, err := looked(t, order)
			if (name == "dir/taken" || name == "closed/f") && owner != 0 {
				if sandbox.KindOf(err) != sandbox.Denied {
					t.Errorf("read of uid %d's: %s, %v, want denied", owner, got, err)
				}
			} else if err != nil || !strings.Contains(got, `"content":"`) {
				t.Errorf("%s of uid %d's: %s, %v", name, owner, got, err)
			}
		}
		order.Do, order.Path = diskList, "/workspace/closed"
		if got, _, err := looked(t, order); (err == nil && got != "") != (owner == 0) {
			t.Errorf("list of a closed directory of uid %d's: %q, %v", owner, got, err)
		}
		if err := order.exportable(); (sandbox.KindOf(err) == sandbox.Denied) != (owner != 0) {
			t.Errorf("export of uid %d's: %v", owner, err)
		}
	}
}
