// Package dockerfile reads the part of a Dockerfile that a template's build
// has: one stage of FROM, RUN, COPY, ENV, ARG, WORKDIR, USER, and CMD or
// ENTRYPOINT as the start command. It makes steps of that, and finds the files
// that are copied.
//
// Anything else is an error that names the line: further stages, flags, here
// documents, other instructions, and a $ that is quoted, for the build would
// expand it. The parser is our own: that of BuildKit, which knows all of them,
// would decide over the versions of modules that the walls are pinned to.
package dockerfile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

const (
	maxText  = 1 << 20
	maxSteps = 190 // of a build, with those that are added here
)

// File is what was read.
type File struct {
	From  string
	Steps []Step
	Start string // of CMD and ENTRYPOINT; "": none
}

// Step is one step of a build. Src and Dest are a COPY's.
type Step struct {
	Line      int
	Type      string
	Args      []string
	Src, Dest string
	Owner     string
	Mode      string
}

// Error is a line that can't be honoured.
type Error struct {
	Line int
	Msg  string
}

// Error names the line.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

type parser struct {
	args  map[string]string // of the command line
	known map[string]string // ARGs before FROM
	f     File
	entry *words
	cmd   *words
	user  bool // USER was said
	dir   bool // WORKDIR was said
	line  int
}

// words are of CMD or ENTRYPOINT.
type words struct {
	shell string
	exec  []string
}

func (p *parser) bad(format string, args ...any) error {
	return &Error{p.line, fmt.Sprintf(format, args...)}
}

// Parse reads a Dockerfile. args are values for ARG; one that no ARG names is
// an error.
func Parse(text string, args map[string]string) (File, error) {
	p := &parser{args: args, known: map[string]string{}, line: 1}
	if len(text) > maxText || strings.ContainsRune(text, 0) {
		return File{}, p.bad("larger than %d bytes, or not text", maxText)
	}
	used := map[string]bool{}
	for _, l := range logical(text) {
		p.line = l.line
		if err := p.instruction(l.text, used); err != nil {
			return File{}, err
		}
		if len(p.f.Steps) > maxSteps {
			return File{}, p.bad("more than %d steps", maxSteps)
		}
	}
	if p.f.From == "" {
		return File{}, p.bad("there is no FROM")
	}
	for name := range args {
		if !used[name] {
			return File{}, &Error{p.line, fmt.Sprintf("no ARG is called %.80q", name)}
		}
	}
	if !p.user {
		p.add("USER", "user")
	}
	if !p.dir {
		p.add("WORKDIR", "/home/user")
	}
	p.f.Start = p.start()
	return p.f, nil
}

type logicalLine struct {
	line int
	text string
}

// logical joins lines that end with a backslash, and leaves out comments.
func logical(text string) (out []logicalLine) {
	var b strings.Builder
	first, open := 0, false
	for i, l := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		trimmed := strings.TrimSpace(l)
		if strings.HasPrefix(trimmed, "#") || trimmed == "" {
			continue // within a continued line, too
		}
		if !open {
			first, open = i+1, true
			b.Reset()
			l = strings.TrimLeft(l, " \t")
		}
		if body, ok := strings.CutSuffix(strings.TrimRight(l, " \t"), `\`); ok {
			b.WriteString(body)
			continue
		}
		b.WriteString(l)
		out = append(out, logicalLine{first, strings.TrimSpace(b.String())})
		open = false
	}
	if open && strings.TrimSpace(b.String()) != "" {
		out = append(out, logicalLine{first, strings.TrimSpace(b.String())})
	}
	return out
}

func (p *parser) add(kind string, args ...string) {
	p.f.Steps = append(p.f.Steps, Step{Line: p.line, Type: kind, Args: args})
}

func (p *parser) instruction(text string, used map[string]bool) error {
	kind, rest, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	kind, rest = strings.ToUpper(kind), strings.TrimSpace(rest)
	if kind != "FROM" && kind != "ARG" && p.f.From == "" {
		return p.bad("%.40s before FROM", kind)
	}
	if rest == "" {
		return p.bad("%.40s: nothing follows", kind)
	}
	switch kind {
	case "FROM":
		return p.from(rest)
	case "ARG":
		return p.arg(rest, used)
	case "RUN":
		return p.run(rest)
	case "COPY":
		return p.copy(rest)
	case "ENV":
		return p.env(rest)
	case "WORKDIR", "USER":
		w, err := p.word(rest)
		if err != nil {
			return err
		}
		p.user, p.dir = p.user || kind == "USER", p.dir || kind == "WORKDIR"
		p.add(kind, w)
		return nil
	case "CMD", "ENTRYPOINT":
		w, err := p.words(rest)
		if err != nil {
			return err
		}
		if kind == "CMD" {
			p.cmd = w
		} else {
			p.entry, p.cmd = w, nil
		}
		return nil
	}
	return p.bad("%.40s: no template's build has that; there are FROM, RUN, COPY, ENV, ARG, WORKDIR, USER, CMD and ENTRYPOINT", kind)
}

func (p *parser) from(rest string) error {
	fields := strings.Fields(rest)
	switch {
	case p.f.From != "":
		return p.bad("FROM: a template's build has one stage")
	case strings.HasPrefix(fields[0], "-"):
		return p.bad("FROM: the flag %.80q is not one here", fields[0])
	case len(fields) != 1 && (len(fields) != 3 || !strings.EqualFold(fields[1], "as")):
		return p.bad("FROM: an image, and nothing more")
	}
	image, err := p.substitute(fields[0])
	if err != nil {
		return err
	}
	p.f.From = image
	p.add("USER", "root")
	p.add("WORKDIR", "/")
	return nil
}

// substitute puts the values of ARGs into FROM.
func (p *parser) substitute(text string) (string, error) {
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(text, "$")
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		var name string
		if inner, ok := strings.CutPrefix(after, "{"); ok {
			if name, after, ok = strings.Cut(inner, "}"); !ok {
				return "", p.bad("FROM: a { without }")
			}
		} else {
			n := strings.IndexFunc(after, func(c rune) bool { return !nameRune(c) })
			if n < 0 {
				n = len(after)
			}
			name, after = after[:n], after[n:]
		}
		value, ok := p.known[name]
		if !ok {
			return "", p.bad("FROM: no ARG before it has a value for %.80q", name)
		}
		out.WriteString(value)
		text = after
	}
}

func nameRune(c rune) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func validName(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') && !strings.ContainsFunc(s, func(c rune) bool { return !nameRune(c) })
}

func (p *parser) arg(rest string, used map[string]bool) error {
	w, err := p.word(rest)
	if err != nil {
		return err
	}
	name, value, given := strings.Cut(w, "=")
	if !validName(name) {
		return p.bad("ARG: %.80q is no name", name)
	}
	used[name] = true
	if v, ok := p.args[name]; ok {
		value, given = v, true
	} else if v, ok := p.known[name]; ok && !given {
		value, given = v, true
	}
	if !given {
		return nil
	}
	if p.f.From == "" {
		p.known[name] = value
		return nil
	}
	p.add("ARG", name, value)
	return nil
}

func (p *parser) run(rest string) error {
	if strings.HasPrefix(rest, "--") {
		return p.bad("RUN: the flag %.80q is not one here", strings.Fields(rest)[0])
	}
	if strings.Contains(rest, "<<") && hereDocument(rest) {
		return p.bad("RUN: here documents are not read; write the lines with && and a backslash, or copy a script")
	}
	if argv, ok, err := p.list(rest); ok || err != nil {
		if err == nil {
			p.add("RUN", shell.Quote(argv...))
		}
		return err
	}
	p.add("RUN", rest)
	return nil
}

// hereDocument reports whether a word of a command opens one: <<NAME. A shift
// or a <<< of bash does not.
func hereDocument(text string) bool {
	for f := range strings.FieldsSeq(text) {
		i := strings.Index(f, "<<")
		if i >= 0 && strings.Trim(f[:i], "0123456789") == "" {
			rest := strings.TrimLeft(f[i+2:], `-"'`)
			if rest != "" && (rest[0] >= 'A' && rest[0] <= 'Z' || rest[0] >= 'a' && rest[0] <= 'z' || rest[0] == '_') {
				return true
			}
		}
	}
	return false
}

// list reads a JSON list of words, if there is one.
func (p *parser) list(rest string) ([]string, bool, error) {
	if !strings.HasPrefix(rest, "[") {
		return nil, false, nil
	}
	var argv []string
	if json.Unmarshal([]byte(rest), &argv) != nil {
		return nil, false, nil // a shell's own [
	}
	if len(argv) == 0 {
		return nil, true, p.bad("an empty list")
	}
	return argv, true, nil
}

func (p *parser) words(rest string) (*words, error) {
	argv, ok, err := p.list(rest)
	if ok || err != nil {
		return &words{exec: argv}, err
	}
	return &words{shell: rest}, nil
}

// start puts ENTRYPOINT and CMD together as Docker does.
func (p *parser) start() string {
	text := func(w *words) string {
		if w == nil {
			return ""
		}
		if w.shell != "" {
			return w.shell
		}
		return shell.Quote(w.exec...)
	}
	switch {
	case p.entry == nil:
		return text(p.cmd)
	case p.entry.shell != "" || p.cmd == nil:
		return text(p.entry)
	case p.cmd.shell != "":
		return shell.Quote(append(slices.Clone(p.entry.exec), "/bin/sh", "-c", p.cmd.shell)...)
	}
	return shell.Quote(append(slices.Clone(p.entry.exec), p.cmd.exec...)...)
}

func (p *parser) copy(rest string) error {
	st := Step{Line: p.line, Type: "COPY"}
	for strings.HasPrefix(rest, "--") {
		flag, after, _ := strings.Cut(rest, " ")
		name, value, _ := strings.Cut(flag, "=")
		switch name {
		case "--chown":
			st.Owner = value
		case "--chmod":
			st.Mode = value
		default:
			return p.bad("COPY: the flag %.80q is not one here", name)
		}
		rest = strings.TrimSpace(after)
	}
	if strings.HasPrefix(rest, "<<") {
		return p.bad("COPY: here documents are not read")
	}
	argv, ok, err := p.list(rest)
	if !ok && err == nil {
		argv, err = p.split(rest)
	}
	if err != nil {
		return err
	}
	if len(argv) < 2 || slices.Contains(argv, "") {
		return p.bad("COPY: a source and a target")
	}
	st.Dest = argv[len(argv)-1]
	if len(argv) > 2 && !strings.HasSuffix(st.Dest, "/") {
		return p.bad("COPY: several sources go into a directory: write %.80q", st.Dest+"/")
	}
	for _, src := range argv[:len(argv)-1] {
		one := st
		one.Src = src
		p.f.Steps = append(p.f.Steps, one)
	}
	return nil
}

func (p *parser) env(rest string) error {
	first, after, spaced := strings.Cut(rest, " ")
	if !strings.Contains(first, "=") { // ENV NAME VALUE
		if !spaced || !validName(first) {
			return p.bad("ENV: %.80q is no NAME=VALUE", first)
		}
		value, err := p.unquote(strings.TrimSpace(after))
		if err == nil {
			p.add("ENV", first, value)
		}
		return err
	}
	pairs, err := p.split(rest)
	if err != nil {
		return err
	}
	var args []string
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !validName(name) {
			return p.bad("ENV: %.80q is no NAME=VALUE", pair)
		}
		args = append(args, name, value)
	}
	p.add("ENV", args...)
	return nil
}

// word reads one word, which may be quoted.
func (p *parser) word(rest string) (string, error) {
	w, err := p.split(rest)
	if err == nil && len(w) != 1 {
		err = p.bad("one word, and not %d", len(w))
	}
	if err != nil {
		return "", err
	}
	return w[0], nil
}

func (p *parser) unquote(text string) (string, error) {
	w, err := p.split(text)
	return strings.Join(w, " "), err
}

// split takes words apart, and their quotes off.
func (p *parser) split(text string) (out []string, err error) {
	var b strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, c := range text {
		switch {
		case c == '$' && (escaped || quote == '\''):
			return nil, p.bad("a $ that is quoted can't be kept from being expanded")
		case escaped:
			if quote == '"' && c != '"' && c != '\\' {
				b.WriteRune('\\')
			}
			b.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case c == ' ' || c == '\t':
			if begun {
				out = append(out, b.String())
				b.Reset()
			}
			begun = false
		default:
			b.WriteRune(c)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, p.bad("a quote without its end")
	}
	if begun {
		out = append(out, b.String())
	}
	if len(out) == 0 {
		return nil, p.bad("nothing follows")
	}
	return out, nil
}
