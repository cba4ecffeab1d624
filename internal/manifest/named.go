package manifest

import (
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// readFile reads a file that was named, wherever it lies.
func (x *Index) readFile(file string, p *problems) {
	if e := filepath.Ext(file); e != ".md" && e != ".json" {
		p.add(Place{File: file}, "NAME.md or NAME.json", "it is neither Markdown nor JSON by its name")
		return
	}
	t := readOwn(file, p)
	if t == nil {
		return
	}
	t.origin = ofFile
	switch kindOf(t) {
	case bothFile:
		parseBoth(*t, x, p)
	case agentsDir:
		x.addAgent(parse[Agent](t.file, t.bytes, t.origin, p), p)
	default:
		x.addBottle(parse[Bottle](t.file, t.bytes, t.origin, p), p)
	}
}

// kindOf says what a file is about: by the directory that it lies in, else by its keys.
func kindOf(t *text) string {
	front := t.bytes
	if isMarkdown(t.file) {
		front, _, _ = split(t.bytes)
	}
	root, err := tree.Parse(front, "file", maxEntries)
	has := func(key string) bool {
		if root == nil || err != nil {
			return false
		}
		for i := range root.Pairs {
			if root.Pairs[i].Key == key {
				return true
			}
		}
		return false
	}
	abs, absErr := filepath.Abs(t.file)
	dir := filepath.Base(filepath.Dir(abs))
	switch {
	case !isMarkdown(t.file) && (has(bottlesDir) || has(agentsDir)):
		return bothFile
	case absErr == nil && (dir == agentsDir || dir == bottlesDir):
		return dir
	case has("bottle"):
		return agentsDir
	}
	return bottlesDir
}
