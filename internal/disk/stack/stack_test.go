package stack_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/disk/stack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// layers are an image, mounted, with three layers of an overlay, and the overlay.
type layers struct {
	image, at, merged string
	unmount           func()
}

func mounted(t *testing.T) *layers {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	dir := t.TempDir()
	l := &layers{image: filepath.Join(dir, "image"), at: filepath.Join(dir, "at"), merged: filepath.Join(dir, "merged")}
	check(t, os.WriteFile(l.image, nil, 0o600), os.Truncate(l.image, 64<<20), os.Mkdir(l.at, 0o700), os.Mkdir(l.merged, 0o700))
	for _, cmd := range [][]string{{"mke2fs", "-q", "-F", "-t", "ext4", "-O", "inline_data", l.image}, {"mount", "-o", "loop", l.image, l.at}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs mke2fs and loop devices: %q: %v: %s", cmd, err, out)
		}
	}
	undo := []string{l.at}
	l.unmount = func() {
		for _, at := range slices.Backward(undo) {
			check(t, unix.Unmount(at, 0))
		}
		undo = nil
	}
	t.Cleanup(l.unmount)
	for _, d := range []string{"low", "mid", "up", "work"} {
		check(t, os.Mkdir(filepath.Join(l.at, d), 0o755))
	}
	for _, top := range []string{"mid", "up"} {
		lower := l.at + "/low"
		if top == "up" {
			lower = l.at + "/mid:" + lower
		}
		check(t, os.RemoveAll(l.at+"/work"), os.Mkdir(l.at+"/work", 0o755))
		opts := fmt.Sprintf("lowerdir=%s,upperdir=%s/%s,workdir=%s/work,redirect_dir=on,metacopy=off,index=off", lower, l.at, top, l.at)
		if err := unix.Mount("overlay", l.merged, "overlay", 0, opts); err != nil {
			t.Skipf("needs overlay mounts: %v", err)
		}
		r := rand.New(rand.NewPCG(uint64(len(t.Name())), uint64(len(top))))
		if top == "mid" {
			churn(t, r, l.at+"/low", 200) // before it is looked at
		}
		churn(t, r, l.merged, 200)
		if top == "mid" {
			check(t, unix.Unmount(l.merged, 0))
		} else {
			undo = append(undo, l.merged)
		}
	}
	return l
}

var names = []string{"a", "b", "src", "src-a", "c.txt", "a name\nwith a line", "\xff\xfe", "long" + strings.Repeat("g", 200)}

// churn changes a tree at random.
func churn(t *testing.T, r *rand.Rand, root string, steps int) {
	t.Helper()
	pick := func() string {
		p := root
		for range 1 + (r.IntN(9)+2)/4 {
			p = filepath.Join(p, names[r.IntN(len(names))])
		}
		return p
	}
	for i := range steps {
		p := pick()
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		if fi, err := os.Stat(filepath.Dir(p)); err != nil || !fi.IsDir() {
			continue // RemoveAll would open a pipe there, and wait
		}
		switch r.IntN(11) {
		case 0:
			_ = os.RemoveAll(p)
		case 1, 2:
			if f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o644); err == nil { // it may be a pipe
				_, _ = f.WriteString(strings.Repeat("x", i))
				f.Close()
			}
		case 3:
			_ = os.Mkdir(p, 0o755)
		case 4:
			_ = os.Symlink(names[r.IntN(len(names))], p)
		case 5:
			_ = os.Rename(p, pick())
		case 6:
			_ = os.Link(p, pick())
		case 7:
			_ = os.RemoveAll(p)
			_ = unix.Mkfifo(p, 0o600)
		case 8:
			_ = os.Rename(p, pick())
		case 9, 10:
			_ = unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, pick(), uint(1+r.IntN(2))) // RENAME_NOREPLACE or RENAME_EXCHANGE
		}
	}
}

// seen lists a tree as the kernel shows it.
func seen(t *testing.T, root string) []action.Entry {
	t.Helper()
	all := []action.Entry{}
	check(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		e := action.Entry{Path: strings.TrimPrefix(p, root)}
		switch {
		case fi.IsDir():
			e.ArtifactType = "directory"
		case fi.Mode().IsRegular():
			e.ArtifactType, e.SizeBytes = "file", fi.Size()
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			check(t, err)
			e.ArtifactType, e.SizeBytes, e.LinkTarget = "symlink", fi.Size(), &target
		default:
			return nil
		}
		all = append(all, e)
		return nil
	}))
	slices.SortFunc(all, func(a, b action.Entry) int { return strings.Compare(a.Path, b.Path) })
	return all
}

func lines(all []action.Entry) string {
	var b strings.Builder
	for _, e := range all {
		target := ""
		if e.LinkTarget != nil {
			target = *e.LinkTarget
		}
		fmt.Fprintf(&b, "%q %s %d %q\n", e.Path, e.ArtifactType, e.SizeBytes, target)
	}
	return b.String()
}

// TestAsOverlay: a view of layers is what the kernel's overlay shows, from an image and from
// directories.
func TestAsOverlay(t *testing.T) {
	missed := 0
	defer func() {
		if missed < 3 && !t.Skipped() {
			t.Errorf("a layer was left out 12 times, and only %d trees were others", missed)
		}
	}()
	for i := range 12 {
		t.Run(strings.Repeat("n", i+1), func(t *testing.T) {
			l := mounted(t)
			want := lines(seen(t, l.merged))
			if strings.Count(want, "\n") < 8 {
				t.Fatalf("only %s", want)
			}
			var host []stack.Node
			for _, name := range []string{"up", "mid", "low"} {
				f, err := os.Open(filepath.Join(l.at, name))
				check(t, err)
				defer f.Close()
				n, err := stack.OnHost(f, nil)
				check(t, err)
				host = append(host, n)
			}
			compare(t, host, want)
			check(t, exec.Command("sync", "-f", l.at).Run())
			im, err := disk.Open(l.image)
			check(t, err)
			defer im.Close()
			var inside []stack.Node
			for _, name := range []string{"up", "mid", "low"} {
				n, err := stack.InImage(im.FS, name)
				check(t, err)
				inside = append(inside, n)
			}
			compare(t, inside, want)
			compare(t, []stack.Node{inside[0], host[1], host[2]}, want)
			// Negative control: without the layer between, another tree is shown.
			got, err := stack.New([]stack.Mount{{Path: "/", Layers: []stack.Node{inside[0], inside[2]}}}, false).List(t.Context(), "/", true)
			check(t, err)
			if lines(got) != want {
				missed++
			}
		})
	}
}

func compare(t *testing.T, layers []stack.Node, want string) {
	t.Helper()
	v := stack.New([]stack.Mount{{Path: "/", Layers: layers}}, false)
	got, err := v.List(t.Context(), "/", true)
	check(t, err)
	if have := lines(got); have != want {
		t.Errorf("got\n%s\nwant\n%s", have, want)
	}
	for _, e := range got { // one by one, they are the same
		one, err := v.List(t.Context(), e.Path, false)
		if e.ArtifactType != "directory" && (err != nil || lines(one) != lines([]action.Entry{e})) {
			t.Errorf("%q: got %s, %v", e.Path, lines(one), err)
		}
		if e.ArtifactType == "file" && e.SizeBytes > 0 {
			r, err := v.Read(e.Path, 1<<16)
			if err != nil || r.SizeBytes != e.SizeBytes || r.Content != strings.Repeat("x", int(e.SizeBytes)) {
				t.Errorf("%q: read %+v, %v", e.Path, r, err)
			}
		}
	}
}

func onHost(t *testing.T, dir string) stack.Node {
	t.Helper()
	f, err := os.Open(dir)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	n, err := stack.OnHost(f, nil)
	check(t, err)
	return n
}

func tree(t *testing.T, files ...string) stack.Node {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		name, target, link := strings.Cut(f, "->")
		p := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(p), 0o755))
		switch {
		case link:
			check(t, os.Symlink(target, p))
		case strings.HasSuffix(name, "/"):
			check(t, os.MkdirAll(p, 0o755))
		default:
			check(t, os.WriteFile(p, []byte(name), 0o644))
		}
	}
	return onHost(t, dir)
}

func paths(all []action.Entry) string {
	var list []string
	for _, e := range all {
		list = append(list, e.Path)
	}
	return strings.Join(list, " ")
}

func TestMounts(t *testing.T) {
	v := stack.New([]stack.Mount{
		{Path: "/", Layers: []stack.Node{tree(t, "etc/passwd", "usr/hidden", "workspace/hidden", "proc/hidden", "bin->usr/bin", "here->/workspace/.", "out->../../etc")}},
		{Path: "/usr", Layers: []stack.Node{tree(t, "bin/ls", "up->../etc")}},
		{Path: "/usr/tools/go", Note: "it is the host's"},
		{Path: "/proc"},
		{Path: "/workspace", Layers: []stack.Node{tree(t, "file", "src/child.txt", "src-a")}},
		{Path: "/workspace/deep/point", Layers: []stack.Node{tree(t, "own")}},
	}, false)
	for _, tt := range []struct{ path, want string }{
		{"/", "/bin /etc /here /out /proc /usr /workspace"},
		{"/usr", "/usr/bin /usr/tools /usr/up"},
		{"/usr/tools", "/usr/tools/go"},
		{"/usr/tools/go", ""},
		{"/bin/ls", "/bin/ls"},
		{"/here/src", "/here/src/child.txt"},
		{"/here/deep/point", "/here/deep/point/own"},
		{"/usr/up/passwd", "/usr/up/passwd"},
		{"/out/passwd", "/out/passwd"},
		{"/workspace/deep", "/workspace/deep/point"},
	} {
		got, err := v.List(t.Context(), tt.path, false)
		if err != nil || paths(got) != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.path, paths(got), err, tt.want)
		}
	}
	got, err := v.List(t.Context(), "/workspace", true)
	const want = "/workspace/deep /workspace/deep/point /workspace/deep/point/own /workspace/file /workspace/src /workspace/src-a /workspace/src/child.txt"
	if err != nil || paths(got) != want {
		t.Errorf("got %s, %v", paths(got), err)
	}
	if notes := v.Notes("/usr"); len(notes) != 1 || notes[0] != "/usr/tools/go: it is the host's" {
		t.Errorf("notes %q", notes)
	}
	if notes := v.Notes("/etc"); len(notes) != 0 {
		t.Errorf("notes %q", notes)
	}
	_, err = v.Read("/usr/tools/go/bin/go", 1)
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.NotFound || !strings.Contains(e.Hint, "the host's") {
		t.Errorf("the error is %v", err)
	}
}

func TestPaths(t *testing.T) {
	v := stack.New([]stack.Mount{{Path: "/", Layers: []stack.Node{tree(t, "d/f", "round->round", "file->d/f")}}}, false)
	for _, tt := range []struct {
		path string
		kind sandbox.Kind
		says string
	}{
		{"d", sandbox.Invalid, "begin with a slash"},
		{"/d/../d", sandbox.Invalid, "no part .."},
		{"/none", sandbox.NotFound, "workspace disk path does not exist: /none"},
		{"/d/f/g", sandbox.NotFound, "workspace disk path does not exist"},
		{"/round/x", sandbox.Invalid, "failed to inspect workspace disk path"},
	} {
		if _, err := v.List(t.Context(), tt.path, false); sandbox.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.path, err)
		}
	}
	for _, p := range []string{"/d", "/file"} {
		if _, err := v.Read(p, 5); err == nil || !strings.Contains(err.Error(), "regular files") {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := v.Read("/d/f", 0); err == nil || !strings.Contains(err.Error(), "max_bytes must be positive") {
		t.Error(err)
	}
	if r, err := v.Read("/d/f", 2); err != nil || r.Content != "d/" || !r.Truncated || r.SizeBytes != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestDeep: a directory is listed though the way to it is longer than the kernel takes.
func TestDeep(t *testing.T) {
	dir := t.TempDir()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	check(t, err)
	name := strings.Repeat("d", 200)
	for range 60 {
		check(t, unix.Mkdirat(at, name, 0o755))
		below, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		check(t, err, unix.Close(at))
		at = below
	}
	check(t, unix.Close(at))
	t.Cleanup(func() { _ = exec.Command("rm", "-rf", dir).Run() })
	got, err := stack.New([]stack.Mount{{Path: "/", Layers: []stack.Node{onHost(t, dir)}}}, false).List(t.Context(), "/", true)
	if err != nil || len(got) != 60 || len(got[59].Path) != 60*201 {
		t.Errorf("%d entries, %v", len(got), err)
	}
}

// TestForgedRedirects: a redirect shows a directory of the layers below and nothing else, and is heeded
// as the kernel heeds it.
func TestForgedRedirects(t *testing.T) {
	above := t.TempDir()
	for _, d := range []string{"low/target", "secrets", "mid/evil", "up"} {
		check(t, os.MkdirAll(filepath.Join(above, d), 0o755))
	}
	check(t, os.WriteFile(filepath.Join(above, "low/target/t"), nil, 0o644), os.WriteFile(filepath.Join(above, "secrets/s"), nil, 0o644))
	check(t, os.Symlink("..", filepath.Join(above, "low/out")))
	for _, tt := range []struct {
		to, in    string
		userMarks bool
		want      string
		fails     bool
	}{
		{to: "/target", in: "mid", want: "/evil /evil/t /out /target /target/t"}, // the control
		{to: "target", in: "mid", want: "/evil /evil/t /out /target /target/t"},
		{to: "/target", in: "mid", userMarks: true, want: "/evil /out /target /target/t"},
		{to: "/target", in: "low", want: "/evil /out /target /target/t"},
		{to: "/out/secrets", in: "mid", want: "/evil /out /target /target/t"},
		{to: "/no/such", in: "mid", want: "/evil /out /target /target/t"},
		{to: "/../secrets", in: "mid", fails: true},
		{to: "..", in: "mid", fails: true},
		{to: "a/b", in: "mid", fails: true},
		{to: "/", in: "mid", fails: true},
	} {
		evil := filepath.Join(above, tt.in, "evil")
		check(t, os.MkdirAll(evil, 0o755))
		prefix := "trusted"
		if tt.userMarks {
			prefix = "user"
		}
		if err := unix.Setxattr(evil, prefix+".overlay.redirect", []byte(tt.to), 0); err != nil {
			t.Skipf("needs root, and a file system that takes trusted and user attributes: %v", err)
		}
		var layers []stack.Node
		for _, name := range []string{"up", "mid", "low"} {
			layers = append(layers, onHost(t, filepath.Join(above, name)))
		}
		got, err := stack.New([]stack.Mount{{Path: "/", Layers: layers}}, tt.userMarks).List(t.Context(), "/", true)
		if (err != nil) != tt.fails || err == nil && paths(got) != tt.want {
			t.Errorf("%q in %s: %s, %v", tt.to, tt.in, paths(got), err)
		}
		check(t, os.RemoveAll(evil))
	}
}
