package provider

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// npmPlaces are where the tools that install npm's packages for a user put programs, as
// Places.Paths has them; {program} and {package} stand for those.
var npmPlaces = []string{
	"~/.npm-global/bin/{program}",
	"~/.npm-packages/bin/{program}",
	"${NVM_DIR:-~/.nvm}/versions/node/*/bin/{program}",
	"${FNM_DIR:-~/.local/share/fnm}/node-versions/*/installation/bin/{program}",
	"~/.fnm/node-versions/*/installation/bin/{program}",
	"${VOLTA_HOME:-~/.volta}/tools/image/packages/{package}/bin/{program}",
	"${BUN_INSTALL:-~/.bun}/bin/{program}",
	"${PNPM_HOME:-~/.local/share/pnpm}/global/*/node_modules/{package}",
	"~/.config/yarn/global/node_modules/.bin/{program}",
	"~/.local/share/mise/installs/node/*/bin/{program}",
	"~/.asdf/installs/nodejs/*/bin/{program}",
	"${N_PREFIX:-~/n}/bin/{program}",
	"/home/linuxbrew/.linuxbrew/bin/{program}",
	"/usr/local/bin/{program}",
}

// pypiPlaces are those of the tools that install a program of PyPI's for a user.
var pypiPlaces = []string{
	"${PIPX_HOME:-~/.local/share/pipx}/venvs/{package}/bin/{program}",
	"~/.local/pipx/venvs/{package}/bin/{program}",
	"${UV_TOOL_DIR:-~/.local/share/uv/tools}/{package}/bin/{program}",
}

// Places are all paths at which the program may be, in the order in which they count.
func (p *Provider) places(o *Outside) (out []string) {
	add := func(s string) {
		s = strings.NewReplacer("{program}", p.Program, "{package}", cmp.Or(p.Install.NPM, p.Install.PyPI)).Replace(s)
		if s, ok := o.expand(s); ok {
			out = append(out, newestFirst(s)...)
		}
	}
	for dir := range strings.SplitSeq(o.variable("PATH"), ":") {
		if filepath.IsAbs(dir) {
			out = append(out, filepath.Join(dir, p.Program))
		}
	}
	for _, s := range p.Install.Paths {
		add(s)
	}
	if p.Install.NPM != "" {
		for _, prefix := range o.npmPrefixes() {
			out = append(out, filepath.Join(prefix, "bin", p.Program))
		}
		for _, s := range npmPlaces {
			add(s)
		}
	}
	if p.Install.PyPI != "" {
		for _, s := range pypiPlaces {
			add(s)
		}
	}
	return out
}

// npmPrefixes are where npm is told to install, by a variable or by ~/.npmrc.
func (o *Outside) npmPrefixes() (out []string) {
	for _, name := range []string{"NPM_CONFIG_PREFIX", "npm_config_prefix"} {
		if v := o.variable(name); filepath.IsAbs(v) {
			out = append(out, v)
		}
	}
	b, err := readSmall(filepath.Join(o.Home, ".npmrc"))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(k) != "prefix" {
			continue
		}
		v = strings.NewReplacer("${HOME}", o.Home, "$HOME", o.Home).Replace(strings.Trim(strings.TrimSpace(v), `"'`))
		if v, ok := o.expand(v); ok {
			out = append(out, v)
		}
	}
	return out
}

// expand replaces a ~ or ${NAME:-…} at the beginning. False: nothing absolute comes of it.
func (o *Outside) expand(s string) (string, bool) {
	if rest, ok := strings.CutPrefix(s, "${"); ok {
		inner, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", false
		}
		name, otherwise, _ := strings.Cut(inner, ":-")
		v := o.variable(name)
		if !filepath.IsAbs(v) {
			v = otherwise
		}
		s = v + after
	}
	if s == "~" || strings.HasPrefix(s, "~/") {
		if o.Home == "" {
			return "", false
		}
		s = o.Home + s[1:]
	}
	return filepath.Clean(s), filepath.IsAbs(s)
}

// maxMatches bounds how many versions are looked at.
const maxMatches = 200

// newestFirst are the paths that a pattern stands for, the highest version first.
func newestFirst(pattern string) []string {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	slices.SortFunc(found, func(a, b string) int { return byVersion(b, a) })
	return found[:min(len(found), maxMatches)]
}

// byVersion compares texts, and numbers in them as numbers.
func byVersion(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, _ := strconv.ParseUint(a[:na], 10, 64) // too many digits are the most
			y, _ := strconv.ParseUint(b[:nb], 10, 64)
			if c := cmp.Compare(x, y); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if c := cmp.Compare(a[0], b[0]); c != 0 {
			return c
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if n < 0 {
		n = len(s)
	}
	return n
}

// Shown is a directory of the machine that a sandbox sees, and only reads.
type Shown struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Copied is a file of the machine's that lies among others' and is copied in.
type Copied struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Installation is a program that was found, and how a sandbox gets it.
type Installation struct {
	Path    string   `json:"path"`              // where it was found
	Real    string   `json:"real"`              // and where that leads
	Version string   `json:"version,omitempty"` // as far as its files say
	Argv    []string `json:"argv"`              // inside
	Shown   []Shown  `json:"shown,omitempty"`
	Copied  []Copied `json:"copied,omitempty"`
}

// FindProgram looks for the program on this machine. Nil: it is nowhere. guestHome is the
// home inside, for what is copied.
func (p *Provider) FindProgram(o *Outside, guestHome string) (*Installation, error) {
	if p.Program == "" {
		return nil, nil
	}
	seen := map[string]bool{}
	var last error
	for _, at := range p.places(o) {
		real, err := filepath.EvalSymlinks(at)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		in := &installer{p: p, o: o, home: guestHome, out: &Installation{Path: at, Real: real}}
		ok, err := in.take(real)
		if err != nil {
			last = err // another place may do
			continue
		}
		if ok {
			return in.out, nil
		}
	}
	return nil, last
}

// NoProgram says that a program is nowhere, and what to do.
func (p *Provider) NoProgram() error {
	e := sandbox.Errorf(sandbox.Invalid, "no program %s on this machine", p.Program)
	switch {
	case p.Install.NPM != "":
		return e.WithHint("npm install -g %s", p.Install.NPM)
	case p.Install.PyPI != "":
		return e.WithHint("uv tool install %s", p.Install.PyPI)
	}
	return e.WithHint("put it into a directory of PATH, or name its place in %s", cmp.Or(p.From, "a file of the agent's"))
}

// shownDir is where a program's parts are inside.
func (p *Provider) shownDir(parts ...string) string {
	return path.Join(append([]string{"/opt/carboy", p.Name}, parts...)...)
}

func isExecutable(fi os.FileInfo) bool { return fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0 }
