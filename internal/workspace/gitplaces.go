package workspace

import (
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// named protects the repository that a worktree's .git file names, where that
// is in the tree. Others than a submodule's have no place of their own.
func (g *gitScan) named(worktree, file string) error {
	value, ok := strings.CutPrefix(g.line(file), "gitdir:")
	dir, in := g.inTree(worktree, strings.TrimSpace(value))
	if !ok || !in {
		return nil
	}
	if common := g.line(joinPath(dir, "commondir")); common != "" {
		if dir, in = g.inTree(dir, common); !in {
			return nil
		}
	}
	if !g.isRepository(dir) {
		if g.vacant(dir) {
			return g.within(dir, true)
		}
		return nil
	}
	g.add(Protect{Path: dir, Dir: true})
	return g.repository(worktree, dir)
}

// line returns the first line of a file, "" where there is none.
func (g *gitScan) line(file string) string {
	text, _, _ := strings.Cut(g.text(file, maxPath+len("gitdir: ")), "\n")
	return strings.TrimSpace(text)
}

// absent closes the places of those submodules that a worktree has none of
// yet: git on the host takes a repository that is made there for the submodule.
func (g *gitScan) absent(worktree string) error {
	for _, v := range g.config(joinPath(worktree, ".gitmodules")) {
		if !strings.HasPrefix(v.key, "submodule.") || !strings.HasSuffix(v.key, ".path") || path.IsAbs(v.value) {
			continue
		}
		p, ok := g.inTree(worktree, v.value)
		if !ok || underGit(p) || !g.vacant(p) {
			continue
		}
		if err := g.within(p, true); err != nil {
			return err
		}
	}
	return nil
}

func underGit(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if foldName(name) == ".git" {
			return true
		}
	}
	return false
}

// vacant reports whether p is an empty directory, or could become one.
func (g *gitScan) vacant(p string) bool {
	for up := p; up != "."; up, _ = splitPath(up) {
		st, err := g.base.stat(up)
		if err != nil {
			return false
		}
		if st == nil {
			continue
		}
		kind, _ := kindOf(st)
		if kind != Dir || up != p {
			return kind == Dir || kind == Symlink && up != p // which is refused
		}
		d, err := g.base.openDir(p)
		if err != nil {
			return false
		}
		defer d.Close()
		_, err = d.Readdirnames(1)
		return err == io.EOF
	}
	return true
}

// worktreeOf returns the directory that a submodule's hooks path is relative
// to: its core.worktree.
func (g *gitScan) worktreeOf(dir string) string {
	for _, v := range g.config(joinPath(dir, "config")) {
		if v.key == "core.worktree" && !path.IsAbs(v.value) {
			return path.Join(dir, v.value)
		}
	}
	return dir
}

// configured protects what a config file names inside the tree, and what the
// files do that it includes.
func (g *gitScan) configured(worktree, file string) error {
	if g.read[[2]string{worktree, file}] {
		return nil
	}
	g.read[[2]string{worktree, file}] = true
	dir, _ := splitPath(file)
	for _, v := range g.config(file) {
		from := dir
		switch {
		case v.key == "core.hookspath":
			from = worktree
		case v.key == "include.path" || strings.HasPrefix(v.key, "includeif.") && strings.HasSuffix(v.key, ".path"):
		default:
			continue
		}
		p, ok := g.inTree(from, v.value)
		if !ok {
			continue
		}
		hooks := v.key == "core.hookspath"
		if err := g.within(p, hooks); err != nil {
			return err
		}
		if hooks {
			continue
		}
		if err := g.configured(worktree, p); err != nil {
			return err
		}
	}
	return nil
}

// inTree returns the path in the tree that git reads a value as from a
// directory of it, if it is one.
func (g *gitScan) inTree(from, value string) (p string, ok bool) {
	if value == "" || value[0] == '~' {
		return "", false
	}
	p = path.Join(from, value)
	if path.IsAbs(value) {
		if p, ok = strings.CutPrefix(path.Clean(value), strings.TrimSuffix(g.top, "/")+"/"); !ok {
			return "", false
		}
	}
	return p, p != "." && checkPath(p) == nil
}

// within protects a path of the tree, which may be missing with what leads to
// it.
func (g *gitScan) within(p string, dir bool) error {
	for up, _ := splitPath(p); up != "."; up, _ = splitPath(up) {
		st, err := g.base.stat(up)
		if err != nil {
			return err
		}
		if st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unprotectable(up)
		}
		g.add(Protect{Path: up, Dir: true, Missing: st == nil})
	}
	return g.protect(Protect{Path: p, ReadOnly: true, Dir: dir})
}

func (g *gitScan) config(file string) []gitVariable {
	return parseGitConfig(g.text(file, maxGitConfig))
}

// text returns the beginning of a file, "" where it can't be read.
func (g *gitScan) text(file string, most int) string {
	f, st, err := g.base.open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, min(int64(most), st.Size))
	n, err := readUpTo(f, text)
	if err != nil {
		return ""
	}
	return string(text[:n])
}

// maxGitConfig is how much of a git configuration file is read.
const maxGitConfig = 1 << 20

// gitVariable is one setting: "core.hookspath", or "includeif.gitdir:x.path".
type gitVariable struct{ key, value string }

// parseGitConfig reads the settings of a git configuration file. It skips what
// it can't read: a line too many protects too much at worst.
func parseGitConfig(text string) []gitVariable {
	var out []gitVariable
	section := ""
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			head, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				continue
			}
			section = gitSection(head)
			line = strings.TrimSpace(rest)
		}
		if line == "" || line[0] == '#' || line[0] == ';' || section == "" {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		out = append(out, gitVariable{section + "." + strings.ToLower(strings.TrimSpace(name)), gitValue(value)})
	}
	return out
}

// gitSection reads what is between the brackets: a name, and perhaps a quoted
// part whose case counts.
func gitSection(head string) string {
	name, sub, ok := strings.Cut(head, `"`)
	name = strings.ToLower(strings.TrimSpace(name))
	if !ok {
		return name
	}
	return name + "." + strings.TrimSuffix(strings.TrimSpace(sub), `"`)
}

// gitValue takes quotes, escapes and comments out of a value.
func gitValue(s string) string {
	var b strings.Builder
	quoted := false
	s = strings.TrimSpace(s)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c == '"':
			quoted = !quoted
		case (c == '#' || c == ';') && !quoted:
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String())
}
