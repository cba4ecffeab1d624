package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxParts bounds how many packages are shown one by one.
const maxParts = 12

// installer finds out how a program at a place gets into a sandbox.
type installer struct {
	p    *Provider
	o    *Outside
	home string // inside
	out  *Installation
}

// take looks at one place. False: it is no program, or one that stands for another.
func (in *installer) take(real string) (bool, error) {
	fi, err := os.Stat(real)
	if err != nil {
		return false, nil //nolint:nilerr // it is not there for this user
	}
	if fi.IsDir() { // a package, by its directory
		return in.packageDir(real)
	}
	if !isExecutable(fi) || in.isShim(real) {
		return false, nil
	}
	in.out.Version = in.version(real)
	head, err := readHead(real)
	if err != nil {
		return false, nil //nolint:nilerr // it can't be read by this user, so it can't be shown
	}
	switch interpreter(head) {
	case "node":
		return true, in.script("node", real)
	case "bun":
		return true, in.script("bun", real)
	case "python":
		return true, in.python(real)
	}
	if isWrapper(head) {
		return false, nil
	}
	guest, err := in.show(real)
	in.out.Argv = []string{guest}
	return err == nil, err
}

// packageDir takes the program that a package's own package.json names.
func (in *installer) packageDir(dir string) (bool, error) {
	m, err := readManifest(dir)
	if err != nil {
		return false, nil //nolint:nilerr // no package
	}
	bin := m.Bin[in.p.Program]
	if bin == "" || !localPath(path.Clean(bin)) {
		return false, nil
	}
	real, err := filepath.EvalSymlinks(filepath.Join(dir, path.Clean(bin)))
	if err != nil {
		return false, nil //nolint:nilerr // half an installation
	}
	in.out.Path, in.out.Real = dir, real
	fi, err := os.Stat(real)
	if err != nil || fi.IsDir() {
		return false, nil //nolint:nilerr // as above
	}
	return in.take(real)
}

// isShim reports whether a program only looks for another, by the name it is called by.
func (in *installer) isShim(real string) bool {
	return filepath.Base(real) == "volta-shim" || strings.Contains(real, "/shims/")
}

// isWrapper reports whether a script is one that pnpm and others write, which runs a
// program of node_modules.
func isWrapper(head []byte) bool {
	return bytes.HasPrefix(head, []byte("#!")) && bytes.Contains(head, []byte("basedir=")) && bytes.Contains(head, []byte("node_modules"))
}

// interpreter is what a script's first line names: node, bun or python; "" for others.
func interpreter(head []byte) string {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	words := strings.Fields(strings.TrimPrefix(string(line), "#!"))
	if !bytes.HasPrefix(line, []byte("#!")) || len(words) == 0 {
		return ""
	}
	if path.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
	}
	if len(words) == 0 {
		return ""
	}
	switch name := path.Base(words[0]); {
	case name == "node" || name == "bun":
		return name
	case strings.HasPrefix(name, "python"):
		return "python"
	}
	return ""
}

// inImage reports whether a path of the machine is one of the host's image, too.
func inImage(real string) bool { return strings.HasPrefix(real, "/usr/") }

// show makes a program that runs by itself visible, and says where.
func (in *installer) show(real string) (string, error) {
	if inImage(real) {
		return real, nil
	}
	if strings.Contains(real, "/node_modules/") {
		return in.showPackage(real)
	}
	for _, tree := range in.p.Install.Trees {
		dir, ok := in.o.expand(tree)
		if !ok {
			continue
		}
		if dir, err := filepath.EvalSymlinks(dir); err == nil {
			if rel, ok := below(dir, real); ok {
				return path.Join(in.mount(dir, "program"), rel), nil
			}
		}
	}
	return in.copyIn(real), nil
}

func (in *installer) copyIn(real string) string {
	target := path.Join(in.home, ".local/bin", filepath.Base(real))
	in.out.Copied = append(in.out.Copied, Copied{Source: real, Target: target})
	return target
}

// mount shows a directory below the place of the program's parts.
func (in *installer) mount(dir string, parts ...string) string {
	target := in.p.shownDir(parts...)
	if !slices.ContainsFunc(in.out.Shown, func(s Shown) bool { return s.Target == target }) {
		in.out.Shown = append(in.out.Shown, Shown{Source: dir, Target: target})
	}
	return target
}

// below is the path from dir to p; false where p is not in dir.
func below(dir, p string) (string, bool) {
	rel, err := filepath.Rel(dir, p)
	return rel, err == nil && filepath.IsLocal(rel)
}

// script is a program of node's or bun's: the runtime is shown, too.
func (in *installer) script(runtime, real string) error {
	guest, err := in.show(real)
	if err != nil {
		return err
	}
	run, err := in.runtime(runtime, real)
	if err != nil {
		return err
	}
	in.out.Argv = []string{run, guest}
	return nil
}

// runtime finds node or bun: the one beside the script's own prefix, then that of PATH,
// then where version managers have it.
func (in *installer) runtime(name, script string) (string, error) {
	var at []string
	if prefix, _, ok := strings.Cut(script, "/lib/node_modules/"); ok {
		at = append(at, filepath.Join(prefix, "bin", name))
	}
	finder := &Provider{Name: in.p.Name, Program: name, Install: Places{
		NPM: name, Paths: []string{"/usr/bin/" + name, "${VOLTA_HOME:-~/.volta}/tools/image/node/*/bin/" + name},
	}}
	at = append(at, finder.places(in.o)...)
	for _, p := range at {
		real, err := filepath.EvalSymlinks(p)
		if err != nil || in.isShim(real) {
			continue
		}
		if fi, err := os.Stat(real); err != nil || !isExecutable(fi) {
			continue
		}
		if inImage(real) {
			return real, nil
		}
		dir := filepath.Dir(real)
		if filepath.Base(dir) == "bin" && isPrefix(filepath.Dir(dir)) {
			return path.Join(in.mount(dir, "runtime/bin"), filepath.Base(real)), nil
		}
		return in.copyIn(real), nil
	}
	return "", sandbox.Errorf(sandbox.Invalid, "%s needs %s, which is not on this machine", in.p.Program, name).WithHint("install %s", name)
}

// isPrefix reports whether dir is one that node was installed to, and nothing of the user's.
func isPrefix(dir string) bool {
	fi, err := os.Stat(filepath.Join(dir, "include/node"))
	return err == nil && fi.IsDir()
}

// manifest is what counts of a package.json.
type manifest struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Bin      bins              `json:"bin"`
	Needs    map[string]string `json:"dependencies"`
	Optional map[string]string `json:"optionalDependencies"`
}

// bins are the programs of a package: one by the package's name, or several.
type bins map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (b *bins) UnmarshalJSON(raw []byte) error {
	var many map[string]string
	if json.Unmarshal(raw, &many) == nil {
		*b = many
	}
	return nil // one alone has the package's name: no provider needs that
}

func readManifest(dir string) (*manifest, error) {
	b, err := readSmall(filepath.Join(dir, "package.json"))
	if err != nil {
		return nil, err
	}
	var m manifest
	return &m, json.Unmarshal(b, &m)
}

// packageRoot is the directory of the package that a file is in: the last node_modules'
// next name, or two where it is scoped.
func packageRoot(file string) string {
	i := strings.LastIndex(file, "/node_modules/")
	rest := file[i+len("/node_modules/"):]
	parts := strings.SplitN(rest, "/", 3)
	n := 1
	if strings.HasPrefix(rest, "@") {
		n = 2
	}
	return filepath.Join(file[:i], "node_modules", filepath.Join(parts[:min(n, len(parts))]...))
}

// showPackage shows a package with those that it needs, each at its name below one
// node_modules, and says where file is then.
func (in *installer) showPackage(file string) (string, error) {
	root := packageRoot(file)
	parts := map[string]string{}
	if !in.collect(root, parts) {
		return in.showModules(file)
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		in.mount(parts[name], "node_modules", name)
	}
	name, _ := below(modulesOf(root), root)
	rel, ok := below(root, file)
	if !ok {
		return "", sandbox.Errorf(sandbox.Invalid, "%s is not in its own package", file)
	}
	return in.p.shownDir("node_modules", name, rel), nil
}

// modulesOf is the node_modules that a package lies in.
func modulesOf(root string) string {
	dir := filepath.Dir(root)
	if filepath.Base(dir) != "node_modules" {
		dir = filepath.Dir(dir) // a scope
	}
	return dir
}

// collect adds a package, and those that it needs and does not hold itself. False: they
// are many, or two of one name.
func (in *installer) collect(root string, parts map[string]string) bool {
	modules := modulesOf(root)
	name, ok := below(modules, root)
	if !ok {
		return false
	}
	if have, ok := parts[name]; ok {
		return have == root
	}
	if len(parts) == maxParts {
		return false
	}
	parts[name] = root
	m, err := readManifest(root)
	if err != nil {
		return true // nothing is known to be needed
	}
	for _, needs := range []map[string]string{m.Needs, m.Optional} {
		for _, need := range slices.Sorted(maps.Keys(needs)) {
			if !localPath(need) {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, "node_modules", need)); err == nil {
				continue // it is shown with the package
			}
			real, err := filepath.EvalSymlinks(filepath.Join(modules, need))
			if err != nil {
				continue // an optional one, or one for another machine
			}
			if strings.HasSuffix(real, "/node_modules/"+need) && !in.collect(real, parts) {
				return false
			}
		}
	}
	return true
}

// showModules shows the outermost node_modules that a file is in.
func (in *installer) showModules(file string) (string, error) {
	top, rest, _ := strings.Cut(file, "/node_modules/")
	return path.Join(in.mount(filepath.Join(top, "node_modules"), "node_modules"), rest), nil
}

// version is what the program's files say of its version; "" where they don't.
func (in *installer) version(real string) string {
	if strings.Contains(real, "/node_modules/") {
		if m, err := readManifest(packageRoot(real)); err == nil && CheckVersion(m.Version) == nil {
			return m.Version
		}
		return ""
	}
	if base := filepath.Base(real); digits(base) > 0 && strings.Contains(base, ".") && CheckVersion(base) == nil {
		return base // ~/.local/share/claude/versions/2.1.3
	}
	return ""
}

// readHead reads the first bytes of a file.
func readHead(name string) ([]byte, error) {
	f, err := beneath.OpenInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b := make([]byte, 4096)
	n, err := io.ReadFull(f, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return b[:n], err
}

// readSmall reads a file of a user's that is not large.
func readSmall(name string) ([]byte, error) {
	f, err := beneath.OpenInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, 1<<20))
}
