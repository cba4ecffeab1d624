package gitgate

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
)

// Commit is one that is new to upstream. What its author wrote is fit to be shown.
type Commit struct{ ID, Author, Subject string }

const (
	maxShown  = 100      // commits
	maxDiff   = 64 << 10 // bytes
	maxLogged = 1 << 20
	hidden    = "(not shown: it seems to have a secret)"
)

// show adds to a question what a person decides by: the commits, and what they change. What
// seems to be a secret is not in it.
func (p *push) show(ctx context.Context, q *Question) error {
	if len(p.tips) == 0 {
		return nil
	}
	log := func(most int, args ...string) ([]byte, bool, error) {
		args = append([]string{"log", "--stdin", "--topo-order", "--reverse", "--no-color"}, args...)
		out, err := p.git.Output(ctx, p.fromUpstream(), most, args...)
		over := errors.Is(err, jail.ErrOver)
		if over {
			err = nil
		}
		return out, over, err
	}
	list, _, err := log(maxLogged, "-n", strconv.Itoa(maxShown), "--format=%H%x00%an <%ae>%x00%s")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list)) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), "\x00"); len(f) == 3 {
			q.List = append(q.List, Commit{clip(f[0], 64), p.decent(f[1]), p.decent(f[2])})
		}
	}
	const format = "--format=commit %H%n%n%w(0,4,4)%B"
	changes := func(more ...string) ([]byte, bool, error) {
		// A write that is too much is not kept at all: there is room for one more.
		return log(2*maxDiff, append([]string{format, "-p", "--cc", "--no-ext-diff", "--no-textconv", "--no-renames"}, more...)...)
	}
	text, over, err := changes()
	if paths := about(q.Findings); err == nil && len(text) > maxDiff && len(paths) > 0 { // those first, and then all
		var first []byte
		if first, _, err = changes(append([]string{"--"}, paths...)...); err == nil {
			text, over = append(first, text...), true
		}
	}
	if err == nil && p.commits == 0 {
		text, over, err = p.between(ctx)
	}
	if err != nil {
		return err
	}
	q.Diff, q.Cut = p.redacted(text, over)
	return nil
}

// about are the files that findings are about, as git is told.
func about(findings []Finding) (paths []string) {
	for _, f := range findings {
		if path := ":(literal)" + f.Path; f.Path != "" && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// between is how the refs of a push differ from what they are now.
func (p *push) between(ctx context.Context) (text []byte, over bool, err error) {
	for _, u := range p.order.updates {
		if u.Old == "" || u.New == "" || over {
			continue
		}
		out, err := p.git.Output(ctx, nil, 2*maxDiff, "diff-tree", "-p", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", u.Old+"^{tree}", u.New+"^{tree}")
		over = errors.Is(err, jail.ErrOver)
		if err != nil && !over {
			return nil, false, err
		}
		text = append(append(text, p.shownRef(u.Ref)+"\n"...), out...)
	}
	return text, over, nil
}

// decent is a line of the sandbox's, unless that has a secret.
func (p *push) decent(text string) string {
	if p.suspicious([]byte(text)) {
		return hidden
	}
	return words(clip(text, 200))
}

func (p *push) suspicious(text []byte) bool {
	res := p.rules.Search(text, "")
	return len(res.Hits) > 0 || res.More
}

// redacted is a diff without the parts that have a secret: a part is a file's, or a commit's message.
// over: it is cut, and its last part could end within one.
func (p *push) redacted(text []byte, over bool) (string, bool) {
	parts := split(text)
	if over && len(parts) > 0 && p.hasSecrets() {
		parts = parts[:len(parts)-1]
	}
	var b strings.Builder
	for _, part := range parts {
		if p.suspicious(part) {
			first, _, _ := bytes.Cut(part, []byte("\n"))
			if p.suspicious(first) {
				first = nil
			}
			part = append(bytes.Clone(first), "\n"+hidden+"\n"...)
		}
		if b.Len()+len(part) > maxDiff {
			over = true
			if !p.hasSecrets() {
				b.Write(part[:maxDiff-b.Len()])
			}
			break
		}
		b.Write(part)
	}
	return strings.ToValidUTF8(b.String(), "�"), over
}

func (p *push) hasSecrets() bool {
	for g := range p.found.n {
		if g.kind == Secret {
			return true
		}
	}
	return false
}

// split cuts a diff where a commit or a file begins. Nothing that a file says begins a line like that.
func split(text []byte) (parts [][]byte) {
	from, at := 0, 0
	for line := range bytes.Lines(text) {
		if at > from && (bytes.HasPrefix(line, []byte("commit ")) || bytes.HasPrefix(line, []byte("diff "))) {
			parts = append(parts, text[from:at])
			from = at
		}
		at += len(line)
	}
	return append(parts, text[from:])
}
