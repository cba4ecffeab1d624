package workspace

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of what a patch shows; what is larger is summarised in one line.
const (
	MaxPatchFile  = 8 << 20 // bytes of either side
	maxPatchLines = 200_000 // of either side
	binaryProbe   = 8000    // bytes in which a NUL makes a file binary, as for git
)

// PatchOptions tune WritePatch.
type PatchOptions struct {
	// Raw writes text as it is, for a program such as git apply. By default
	// it is made safe for a terminal, and lines that needed an escape no
	// longer apply.
	Raw bool
}

// KeepForPatch selects the contents that WritePatch needs, for Load.
func KeepForPatch(c *Change) bool { return c.Size <= MaxPatchFile }

// WritePatch writes d as a unified patch in git's form. Files with a NUL near
// their beginning are binary and get one line, as do files beyond
// MaxPatchFile, special files, and files whose content the stream did not
// have. Directories as such are not shown.
func (d *Diff) WritePatch(ctx context.Context, w io.Writer, opts PatchOptions) error {
	for i := range d.Items {
		if err := d.Items[i].WritePatch(ctx, w, opts); err != nil {
			return err
		}
	}
	return nil
}

// WritePatch writes one item's part of its diff's patch.
func (it *Item) WritePatch(ctx context.Context, w io.Writer, opts PatchOptions) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	p := &patcher{diff: it.diff, w: bufio.NewWriter(w), raw: opts.Raw}
	err := p.item(ctx, it)
	if err == nil {
		err = p.w.Flush()
	}
	if err != nil {
		return fmt.Errorf("write patch: %w", err)
	}
	return nil
}

type patcher struct {
	diff *Diff
	w    *bufio.Writer
	raw  bool
}

// side is one side of a file's patch.
type side struct {
	mode string // "100644", "100755", "120000"; empty: not there
	text []byte
	size int64
	big  bool   // too big to show
	why  string // why there is no text
}

func (p *patcher) item(ctx context.Context, it *Item) error {
	if it.Kind == Special || it.blocked != "" {
		why := it.blocked
		if why == "" {
			why = "is a " + term.Escape(it.Detail)
		}
		p.line("Only in the workspace's view: %s %s", quoteName("b/"+it.Path), why)
		return nil
	}
	if it.Was == Dir && it.Kind != Dir {
		if err := p.removedTree(ctx, it); err != nil {
			return err
		}
	}
	if it.From != "" {
		return p.renamed(it)
	}
	was, is := p.before(it.Path, it.Was, it.base), p.after(it)
	if it.Was == File && p.diff.moved[it.Path] {
		was = side{} // it is shown where it is now
	}
	if it.Class == TypeChanged && was.mode != "" && is.mode != "" {
		p.file(it.Path, was, side{})
		was = side{}
	}
	p.file(it.Path, was, is)
	return nil
}

// removedTree shows every file of a directory of the base as deleted.
func (p *patcher) removedTree(ctx context.Context, it *Item) error {
	sum := newTreeSum()
	err := p.diff.base.walk(ctx, it.Path, func(rel string, st *unix.Stat_t) error {
		kind, _ := kindOf(st)
		sum.add(rel, newStamp(st))
		if p.diff.moved[rel] {
			return nil
		}
		p.file(rel, p.before(rel, kind, newStamp(st)), side{})
		return nil
	})
	switch {
	case context.Cause(ctx) != nil:
		return err
	case err != nil:
		p.line("Files below %s: %s", quoteName("a/"+it.Path), reasonFor(err))
	case sum.sum() != it.tree:
		p.line("Files below %s: %s", quoteName("a/"+it.Path), changedMeanwhile)
	}
	return nil
}

// changedMeanwhile is said of what is not as it was when it was compared. It
// is not shown, as it is not what Apply would replace.
const changedMeanwhile = "it changed on the host since it was compared"

// before reads the base's side, which is to be as it was compared.
func (p *patcher) before(rel string, kind Kind, was stamp) side {
	switch kind {
	case Symlink:
		target, err := p.diff.base.readlink(rel)
		if err != nil {
			return side{mode: "120000", why: reasonFor(err)}
		}
		if st, err := p.diff.base.stat(rel); err != nil || !newStamp(st).same(was) {
			return side{mode: "120000", why: changedMeanwhile}
		}
		return side{mode: "120000", text: []byte(target), size: int64(len(target))}
	case File:
		f, st, err := p.diff.base.open(rel)
		if err != nil {
			return side{mode: "100644", why: reasonFor(err)}
		}
		defer f.Close()
		s := side{mode: gitMode(st.Mode), size: st.Size, big: st.Size > MaxPatchFile}
		if s.big {
			return s
		}
		text := make([]byte, st.Size)
		n, err := readUpTo(f, text)
		if err != nil {
			return side{mode: s.mode, why: reasonFor(err)}
		}
		if st, err = statFile(f); err != nil || !newStamp(&st).same(was) {
			return side{mode: s.mode, why: changedMeanwhile}
		}
		s.text = text[:n]
		return s
	}
	return side{}
}

// after reads the workspace's side.
func (p *patcher) after(it *Item) side {
	switch it.Kind {
	case Symlink:
		return side{mode: "120000", text: []byte(it.Target), size: int64(len(it.Target))}
	case File:
		s := side{mode: gitMode(it.Mode), size: it.Size, big: it.Size > MaxPatchFile}
		if s.big || it.Class == ModeChanged {
			return s
		}
		text, err := p.diff.set.text(it.entry, MaxPatchFile)
		if err != nil {
			s.why = "content was not asked for"
		} else if it.entry.torn {
			s.why = "it changed while it was read"
		}
		s.text = text
		return s
	}
	return side{}
}

func gitMode(mode uint32) string {
	if executable(mode) {
		return "100755"
	}
	return "100644"
}

// renamed writes the part of a file that is another of the base.
func (p *patcher) renamed(it *Item) error {
	st, err := p.diff.base.stat(it.From)
	if err != nil {
		return err
	}
	was, is := p.before(it.From, File, newStamp(st)), p.after(it)
	a, b := quoteName("a/"+it.From), quoteName("b/"+it.Path)
	p.line("diff --git %s %s", a, b)
	p.modes(was, is)
	p.line("similarity index %d%%", it.Similarity)
	p.line("rename from %s", quoteName(it.From))
	p.line("rename to %s", quoteName(it.Path))
	if it.Similarity < 100 {
		p.texts(a, b, was, is)
	}
	return nil
}

// modes writes that a file's mode is another.
func (p *patcher) modes(was, is side) {
	if was.mode != is.mode {
		p.line("old mode %s", was.mode)
		p.line("new mode %s", is.mode)
	}
}

// file writes one file's part of the patch. A side without a mode is absent.
func (p *patcher) file(rel string, was, is side) {
	if was.mode == "" && is.mode == "" {
		return
	}
	a, b := quoteName("a/"+rel), quoteName("b/"+rel)
	p.line("diff --git %s %s", a, b)
	switch {
	case was.mode == "":
		p.line("new file mode %s", is.mode)
		a = "/dev/null"
	case is.mode == "":
		p.line("deleted file mode %s", was.mode)
		b = "/dev/null"
	case was.mode != is.mode:
		p.modes(was, is)
		if is.text == nil && is.why == "" && was.size == is.size {
			return // the content is the same
		}
	}
	p.texts(a, b, was, is)
}

// texts writes how the contents of two sides differ.
func (p *patcher) texts(a, b string, was, is side) {
	why := was.why
	if why == "" {
		why = is.why
	}
	switch {
	case why != "":
		p.line("Files %s and %s differ: %s", a, b, why)
	case isBinary(was.text) || isBinary(is.text):
		p.line("Binary files %s and %s differ", a, b)
	case was.big || is.big || lines(was.text) > maxPatchLines || lines(is.text) > maxPatchLines:
		p.line("Files %s and %s differ: %d and %d bytes, too large to show", a, b, was.size, is.size)
	case !bytes.Equal(was.text, is.text):
		p.hunks(a, b, string(was.text), string(is.text))
	}
}

func (p *patcher) hunks(a, b, was, is string) {
	text, err := udiff.ToUnified(a, b, was, udiff.Lines(was, is), udiff.DefaultContextLines)
	if err != nil {
		p.line("Files %s and %s differ: %v", a, b, err)
		return
	}
	out := []byte(text)
	if !p.raw {
		out = term.EscapeText(out)
	}
	p.w.Write(out)
}

// line writes a line of which every argument is safe to print. The first error
// of the writer stays with it.
func (p *patcher) line(format string, args ...any) {
	fmt.Fprintf(p.w, format+"\n", args...)
}

func isBinary(text []byte) bool {
	return bytes.IndexByte(text[:min(len(text), binaryProbe)], 0) >= 0
}

func lines(text []byte) int { return bytes.Count(text, []byte{'\n'}) }

// quoteName writes a name as git does in a patch: as it is, or, where it holds
// a quote, a backslash or anything that is not plainly visible, in quotes with
// C's escapes and octal bytes. The result is safe to print.
func quoteName(name string) string {
	if term.Safe(name) && !strings.ContainsAny(name, "\"\\") {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case term.Safe(name[:n]):
			b.WriteString(name[:n])
		default:
			for i := range n {
				fmt.Fprintf(&b, `\%03o`, name[i])
			}
		}
		name = name[n:]
	}
	b.WriteByte('"')
	return b.String()
}
