package workspace

import (
	"bytes"
	"context"
	"path"

	"golang.org/x/sys/unix"
)

// minSimilar is from which similarity on, in percent, a file is another that was renamed, as for git.
const minSimilar = 50

// FindRenames finds which of the files that d adds are files of the base that it takes away, as git does: those of
// one content, and those of one name whose text is mostly the same, where contents were kept. It sets
// From and Similarity of those added, and To of those that are gone by themselves. Patches
// then show them as renamed. Nothing is found by what a stream says, but by what the base has; what is
// held back, and what d does not show, is not found to be anything; and what Apply does stays the same.
func (d *Diff) FindRenames(ctx context.Context) error {
	f := &renameFinder{
		ctx: ctx, diff: d, dig: newDigester(), buf: make([]byte, 256<<10), bySize: map[int64][]*goneFile{}, byName: map[string][]*goneFile{},
		byPath: map[string]*goneFile{}, dirs: map[string]string{}, moved: map[string]bool{},
	}
	var added []*Item
	for i := range d.Items {
		it := &d.Items[i]
		if it.Class == Added && it.Kind == File && it.Size > 0 && it.Held == "" && it.blocked == "" && !it.entry.torn {
			added = append(added, it)
		}
	}
	if len(added) == 0 {
		return nil
	}
	for i := range d.Items {
		if err := f.gone(&d.Items[i]); err != nil {
			return err
		}
	}
	if len(f.bySize) == 0 {
		return nil
	}
	for i := range d.Items { // d may be a part of the one that they are of
		d.Items[i].diff.moved = f.moved
	}
	return f.match(added)
}

type renameFinder struct {
	ctx  context.Context
	diff *Diff
	dig  *digester
	buf  []byte

	bySize map[int64][]*goneFile
	byName map[string][]*goneFile // by the last component
	byPath map[string]*goneFile
	moved  map[string]bool // files that were found
	// dirs are directories in which files were found, and those of the base that these were in.
	dirs map[string]string
}

// goneFile is a file of the base that a diff takes away.
type goneFile struct {
	path   string
	it     *Item // nil: it goes with a directory
	size   int64
	digest Digest // zero: it was not read
	failed bool   // it can't be
	taken  bool
}

// gone adds the files of the base that an item takes away.
func (f *renameFinder) gone(it *Item) error {
	switch {
	case it.Held != "" || it.blocked != "" || it.Class != Removed && it.Class != TypeChanged:
		return nil
	case it.Was == File:
		f.add(&goneFile{path: it.Path, it: it, size: it.base.size})
		return nil
	case it.Was != Dir:
		return nil
	}
	// What can't be read is not found to be renamed, and the patch says why it can't.
	_ = f.diff.base.walk(f.ctx, it.Path, func(rel string, st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			f.add(&goneFile{path: rel, size: st.Size})
		}
		return nil
	})
	return context.Cause(f.ctx)
}

func (f *renameFinder) add(g *goneFile) {
	if g.size == 0 {
		return
	}
	f.bySize[g.size] = append(f.bySize[g.size], g)
	_, name := splitPath(g.path)
	f.byName[name] = append(f.byName[name], g)
	f.byPath[g.path] = g
}

func (f *renameFinder) match(added []*Item) error {
	var rest []*Item
	for _, it := range added {
		if err := context.Cause(f.ctx); err != nil {
			return err
		}
		g := f.exact(it)
		if g == nil {
			rest = append(rest, it)
			continue
		}
		f.found(it, g, 100)
	}
	for _, it := range rest {
		if err := context.Cause(f.ctx); err != nil {
			return err
		}
		if g := f.namesake(it); g != nil {
			if n := f.similarity(it, g); n >= minSimilar {
				f.found(it, g, n)
			}
		}
	}
	return nil
}

func (f *renameFinder) found(it *Item, g *goneFile, similarity int) {
	g.taken = true
	it.From, it.Similarity = g.path, similarity
	f.moved[g.path] = true
	if g.it != nil && g.it.Class == Removed {
		g.it.To = it.Path
	}
	to, _ := splitPath(it.Path)
	f.dirs[to], _ = splitPath(g.path)
}

// maxLike is how many files of one size, or of one name, are looked at for one.
const maxLike = 64

// exact finds a file of the same content: where others came from, then of the same name, then any.
func (f *renameFinder) exact(it *Item) *goneFile {
	if g := f.byPath[f.guess(it.Path)]; g != nil && f.same(it, g) {
		return g
	}
	list := f.bySize[it.Size]
	for len(list) > 0 && list[0].taken {
		list = list[1:]
	}
	f.bySize[it.Size] = list
	list = list[:min(len(list), maxLike)]
	for _, named := range []bool{true, false} {
		for _, g := range list {
			if named == (path.Base(g.path) == path.Base(it.Path)) && f.same(it, g) {
				return g
			}
		}
	}
	return nil
}

// guess returns where a file was if it came with others from where these were; "" without any.
func (f *renameFinder) guess(p string) string {
	dir, rest := splitPath(p)
	for {
		if from, ok := f.dirs[dir]; ok {
			return joinPath(from, rest)
		}
		if dir == "." {
			return ""
		}
		var name string
		dir, name = splitPath(dir)
		rest = name + "/" + rest
	}
}

// same reports whether a file of the base that nothing was found to be has the content of an item.
func (f *renameFinder) same(it *Item, g *goneFile) bool {
	if g.taken || g.failed || g.size != it.Size {
		return false
	}
	if g.digest.IsZero() {
		var err error
		if g.digest, err = f.diff.base.digest(f.ctx, g.path, f.dig, f.buf); err != nil {
			g.failed = true
			return false
		}
	}
	return g.digest == it.Digest
}

// namesake finds the file that was where others came from, or the only one of its name.
func (f *renameFinder) namesake(it *Item) *goneFile {
	if g := f.byPath[f.guess(it.Path)]; g != nil && !g.taken {
		return g
	}
	var only *goneFile
	list := f.byName[path.Base(it.Path)]
	for _, g := range list[:min(len(list), maxLike)] {
		switch {
		case g.taken:
		case only != nil:
			return nil
		default:
			only = g
		}
	}
	return only
}

// similarity is how much of two texts is the same, in percent of the larger: lines count, in any order.
func (f *renameFinder) similarity(it *Item, g *goneFile) int {
	if it.Size > MaxPatchFile || g.size > MaxPatchFile {
		return 0
	}
	is, err := f.diff.set.text(it.entry, MaxPatchFile)
	if err != nil {
		return 0
	}
	file, st, err := f.diff.base.open(g.path)
	if err != nil {
		return 0
	}
	defer file.Close()
	was := make([]byte, min(st.Size, MaxPatchFile))
	n, err := readUpTo(file, was)
	if err != nil || isBinary(is) || isBinary(was[:n]) {
		return 0
	}
	lines := map[string]int{}
	for line := range bytes.SplitAfterSeq(was[:n], []byte{'\n'}) {
		lines[string(line)]++
	}
	common := 0
	for line := range bytes.SplitAfterSeq(is, []byte{'\n'}) {
		if lines[string(line)] > 0 {
			lines[string(line)]--
			common += len(line)
		}
	}
	return min(100*common/max(n, len(is)), 99)
}
