package gitgate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// change is a file that a new commit has otherwise than all of its parents.
type change struct {
	commit, path string
	mode, blob   string // of zeros where it is removed
	was          string // the blob that it was in the only parent; "" for none
}

// Modes of what a tree has.
const (
	modeLink      = "120000"
	modeSubmodule = "160000"
	modeNone      = "000000"
)

// changes lists the files of all new commits, the oldest first.
func (p *push) changes(ctx context.Context) ([]change, error) {
	if p.commits == 0 {
		return nil, nil
	}
	commits, err := p.git.Output(ctx, p.fromUpstream(), maxList, "rev-list", "--reverse", "--topo-order", "--stdin")
	if err != nil {
		return nil, err
	}
	out, err := p.git.Output(ctx, bytes.NewReader(commits), maxList, "diff-tree", "--stdin", "-r", "-c", "--root", "-z", "--no-renames", "--raw", "--no-abbrev")
	if errors.Is(err, jail.ErrOver) {
		return nil, denied("more files are changed than can be looked at")
	}
	if err != nil {
		return nil, err
	}
	return parseChanges(string(out), 2*p.known.format.Size())
}

// moved lists what is otherwise where a ref is to lead than where it leads. The commits need
// not be new: what upstream has on one branch, nobody has let onto another.
func (p *push) moved(ctx context.Context) (all []change, err error) {
	for _, u := range p.order.updates {
		if u.Old == "" || u.New == "" {
			continue
		}
		out, err := p.git.Output(ctx, nil, maxList, "diff-tree", "-r", "-z", "--no-renames", "--raw", "--no-abbrev", u.Old+"^{tree}", u.New+"^{tree}")
		if errors.Is(err, jail.ErrOver) {
			return nil, denied("more files are changed than can be looked at")
		}
		if err != nil {
			return nil, err
		}
		changes, err := parseChanges(u.New+"\x00"+string(out), 2*p.known.format.Size())
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}

// parseChanges reads what git diff-tree writes, for names of objects of that many digits.
func parseChanges(text string, digits int) (all []change, err error) {
	commit := ""
	for text != "" {
		var field string
		field, text, _ = strings.Cut(text, "\x00")
		if !strings.HasPrefix(field, ":") {
			if len(field) != digits {
				return nil, errors.New("git does not say what commits change")
			}
			commit = field
			continue
		}
		parents := len(field) - len(strings.TrimLeft(field, ":"))
		f := strings.Fields(field[parents:])
		var path string
		path, text, _ = strings.Cut(text, "\x00")
		if len(f) != 2*(parents+1)+1 || path == "" || commit == "" {
			return nil, errors.New("git does not say what commits change")
		}
		c := change{commit: commit, path: path, mode: f[parents], blob: f[2*parents+1]}
		if was := f[parents+1]; parents == 1 && strings.Trim(was, "0") != "" {
			c.was = was
		}
		all = append(all, c)
	}
	return all, nil
}

// heldFiles finds files that hosts or forges run or obey: those that an apply would hold back.
func (p *push) heldFiles(ctx context.Context, changes []change) error {
	moved, err := p.moved(ctx)
	if err != nil {
		return err
	}
	changes = slices.Concat(changes, moved)
	tree, links, err := p.tree(ctx, changes)
	if err != nil {
		return err
	}
	texts, err := p.texts(ctx, slices.Concat(changes, links))
	if err != nil {
		return err
	}
	add := func(c change) {
		target, ok := texts[c.blob]
		if !ok {
			target = []byte("/") // wherever it leads
		}
		tree.AddLink(c.path, string(target))
	}
	kept := map[string]change{}
	for _, c := range links {
		kept[c.path] = c
		add(c)
	}
	seen := map[[2]string]bool{}
	for _, c := range slices.Backward(changes) { // a first version hides no later one
		if c.mode == modeLink { // it is judged as it is in that commit, among what the tips have
			add(c)
		}
		why := heldFor(tree, texts, c)
		if key := [2]string{c.path, why}; why != "" && !seen[key] {
			seen[key] = true
			p.find(Finding{Kind: HeldFile, Why: why, Commit: c.commit, Path: c.path, Blob: c.blob, Action: p.remote.Policy.Held})
		}
		if now, ok := kept[c.path]; ok {
			add(now)
		}
	}
	return nil
}

// heldFor is why a file is held, or "".
func heldFor(tree *workspace.HoldTree, texts map[string][]byte, c change) string {
	if why := workspace.HeldByName(c.path); why != "" {
		return why
	}
	for dir := parent(c.path); ; dir = parent(dir) {
		if why := tree.HeldDir(dir); why != "" {
			return why
		}
		if dir == "." {
			break
		}
	}
	switch {
	case c.mode == modeSubmodule:
		return workspace.HeldSubmodule()
	case c.mode == modeLink:
		return tree.HeldLink(c.path)
	case c.mode == modeNone: // what is left is held for what it says
	case workspace.IsAttributes(c.path):
		text, ok := texts[c.blob]
		return workspace.HeldAttributes(text, ok)
	}
	return ""
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return "."
}

// tree has the names of all that the tips and the changes have: a directory that git takes
// for a repository may come in halves. It returns the tips' links besides.
func (p *push) tree(ctx context.Context, changes []change) (_ *workspace.HoldTree, links []change, err error) {
	tree := workspace.NewHoldTree()
	for _, c := range changes {
		for at := c.path; at != "."; at = parent(at) {
			tree.Add(at)
		}
	}
	if len(changes) == 0 {
		return tree, nil, nil
	}
	for _, t := range p.tips {
		out, err := p.git.Output(ctx, nil, maxList, "ls-tree", "-r", "-t", "-z", "--full-tree", t+"^{tree}")
		if errors.Is(err, jail.ErrOver) {
			return nil, nil, denied("a tree of more files than can be looked at")
		}
		if err != nil {
			return nil, nil, err
		}
		for line := range strings.SplitSeq(string(out), "\x00") {
			what, name, ok := strings.Cut(line, "\t")
			if !ok {
				continue
			}
			tree.Add(name)
			if f := strings.Fields(what); len(f) == 3 && f[0] == modeLink { // mode, type and id
				links = append(links, change{commit: t, path: name, mode: modeLink, blob: f[2]})
			}
		}
	}
	return tree, links, nil
}

const (
	maxText  = 1 << 20  // bytes of a file that is read for what it says
	maxTexts = 32 << 20 // of all of them
)

// texts reads links and .gitattributes. What is too long, or too much, is left out.
func (p *push) texts(ctx context.Context, changes []change) (map[string][]byte, error) {
	sizes := map[string]int64{}
	for _, o := range p.objects {
		sizes[o.id] = o.size
	}
	texts, left := map[string][]byte{}, int64(maxTexts)
	var ids []string
	asked := map[string]bool{}
	for _, c := range changes {
		size, fresh := sizes[c.blob]
		if !fresh {
			size = maxText // it is upstream's; it is held to that as it is read
		}
		if c.mode == modeNone || c.mode != modeLink && !workspace.IsAttributes(c.path) || asked[c.blob] || size > maxText || size > left {
			continue
		}
		if fresh {
			left -= size
		}
		asked[c.blob] = true
		ids = append(ids, c.blob)
	}
	err := p.each(ctx, p.git, ids, func(o object, r io.Reader) error {
		if fresh := sizes[o.id] > 0; !fresh {
			left -= o.size
		}
		if o.size > maxText || left < 0 {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		text, err := io.ReadAll(r)
		texts[o.id] = text
		return err
	})
	return texts, err
}
