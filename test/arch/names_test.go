package arch

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// bendable are the packages that use names in directories which a guest can
// change: disks, volumes, snapshots, workspaces, packages of skills, layers.
var bendable = []string{
	"internal/backend/instance", "internal/backend/gvisor", "internal/backend/process", "internal/volume", "internal/snapshot",
	"internal/session", "internal/process", "internal/skill", "internal/template", "internal/image", "internal/langbot", "internal/beneath", "internal/durable", "internal/pod",
}

// pathCalls are functions that take a path, and follow what links are in it,
// by the import path of their package. Mounts are another matter: what they
// take is ours, or a descriptor's own name.
var pathCalls = map[string]string{
	"os": `Chdir Chmod Chown Chtimes CopyFS Create CreateTemp DirFS Lchown Link Lstat Mkdir MkdirAll MkdirTemp Open OpenFile
		OpenInRoot OpenRoot ReadDir ReadFile Readlink Remove RemoveAll Rename Stat Symlink Truncate WriteFile`,
	"path/filepath": "EvalSymlinks Glob Walk WalkDir",
	"io/ioutil":     "ReadDir ReadFile TempDir TempFile WriteFile",
	"syscall":       systemPathCalls,
	system:          systemPathCalls,

	own("internal/durable"): "Rename Sweep SyncDir Write",
}

const (
	system          = "golang.org/x/sys/unix"
	systemPathCalls = `Access Chdir Chmod Chown Chroot Creat Getxattr InotifyAddWatch Lchown Lgetxattr Link Listxattr
		Llistxattr Lremovexattr Lsetxattr Lstat Lutimes Mkdir Mkfifo Mknod Open PivotRoot Readlink Removexattr Rename
		Rmdir Setxattr Stat Statfs Symlink Truncate Unlink Utime Utimes UtimesNano`
)

// mounting are calls at AT_FDCWD that mount.
var mounting = []string{"MoveMount", "MountSetattr", "OpenTree"}

// TestNamesFromOpenDirectories: what a guest can change is used by package
// beneath alone. Who uses a path has a reason in byPath, and each that has one
// needs it.
func TestNamesFromOpenDirectories(t *testing.T) {
	used := map[string][]string{}
	for _, f := range handWritten(t) {
		if slices.ContainsFunc(bendable, func(dir string) bool { return within(f.path, dir) }) {
			for fn, calls := range callsByPath(f) {
				used[fn] = append(used[fn], calls...)
			}
		}
	}
	listed := map[string]bool{}
	for _, r := range byPath {
		if r.why == "" {
			t.Errorf("%s: %s have no reason", r.dir, r.functions)
		}
		for _, fn := range strings.Fields(r.functions) {
			fn = r.dir + "." + fn
			if listed[fn] {
				t.Errorf("%s is listed twice", fn)
			}
			if listed[fn] = true; used[fn] == nil {
				t.Errorf("%s uses no path (any more): take it off the list", fn)
			}
		}
	}
	for _, fn := range slices.Sorted(maps.Keys(used)) {
		if !listed[fn] {
			t.Errorf("%s goes by path: use internal/beneath, or say in byPath why no guest can change what is above\n\t%s",
				fn, strings.Join(used[fn], "\n\t"))
		}
	}
}

// callsByPath lists where f uses a function that takes a path, by the
// functions around, each as "dir.Function" or "dir.Type.Method".
func callsByPath(f goFile) map[string][]string {
	if strings.HasSuffix(f.path, "_test.go") {
		return nil
	}
	names := imported(f)
	out := map[string][]string{}
	for _, d := range f.ast.Decls {
		in := path.Dir(f.path) + "." + declared(d)
		note := func(n ast.Node, what string) {
			out[in] = append(out[in], fmt.Sprintf("%s: %s", f.fset.Position(n.Pos()), what))
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				pkg := names[fmt.Sprint(n.X)]
				if slices.Contains(strings.Fields(pathCalls[pkg]), n.Sel.Name) {
					note(n, fmt.Sprintf("%s.%s", n.X, n.Sel.Name))
				}
			case *ast.CallExpr:
				fun, ok := n.Fun.(*ast.SelectorExpr)
				if ok && names[fmt.Sprint(fun.X)] == system && !slices.Contains(mounting, fun.Sel.Name) && slices.ContainsFunc(n.Args, isWorkingDirectory) {
					note(n, fmt.Sprintf("%s.%s at AT_FDCWD", fun.X, fun.Sel.Name))
				}
			}
			return true
		})
	}
	return out
}

// imported are the names of f's imports.
func imported(f goFile) map[string]string {
	names := map[string]string{}
	for _, i := range f.ast.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		names[path.Base(p)] = p
		if i.Name != nil {
			names[i.Name.Name] = p
		}
	}
	return names
}

func declared(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	if !ok {
		return "var"
	}
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	return fmt.Sprint(t) + "." + fn.Name.Name
}

func isWorkingDirectory(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "AT_FDCWD"
}

func TestNamesGuardRefuses(t *testing.T) {
	tests := []struct {
		name, text string
		want       int
	}{
		{"open", "package p\nimport \"os\"\nfunc f() { os.Open(\"x\") }", 1},
		{"as-a-value", "package p\nimport \"os\"\nvar f = os.RemoveAll", 1},
		{"another-name", "package p\nimport sys \"golang.org/x/sys/unix\"\nfunc (t *t) f() { sys.Chmod(\"x\", 0) }", 1},
		{"at-the-working-directory", "package p\nimport \"golang.org/x/sys/unix\"\nfunc f() { unix.Unlinkat(unix.AT_FDCWD, \"x\", 0) }", 1},
		{"walk", "package p\nimport \"path/filepath\"\nfunc f() { filepath.WalkDir(\"x\", nil) }", 1},
		{"a-record", "package p\nimport \"github.com/carboy-sandbox/carboy/internal/durable\"\nfunc f() { durable.Write(\"x\", nil, durable.Options{}) }", 1},
		{"a-record-in-a-directory", "package p\nimport \"github.com/carboy-sandbox/carboy/internal/durable\"\nfunc f() { durable.WriteIn(d, \"x\", nil, durable.Options{}) }", 0},
		{"from-a-descriptor", "package p\nimport \"golang.org/x/sys/unix\"\nfunc f() { unix.Unlinkat(3, \"x\", 0) }", 0},
		{"a-mount", "package p\nimport \"golang.org/x/sys/unix\"\nfunc f() { unix.MoveMount(3, \"\", unix.AT_FDCWD, \"x\", 0) }", 0},
		{"no-path", "package p\nimport (\"os\"; \"path/filepath\")\nfunc f() { os.Getpid(); filepath.Join() }", 0},
		{"another's-open", "package p\nfunc f(os root) { os.Open(\"x\") }", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(callsByPath(mustParse(t, "p/p.go", tt.text))); got != tt.want {
				t.Errorf("%d functions, want %d", got, tt.want)
			}
		})
	}
}
