package workspace

import (
	"slices"
	"strings"
)

// The reasons for what a tree of git's has, besides those that Apply has for files.
const (
	reasonBare      = "git takes the directory for a repository: " + reasonGit
	reasonDrivers   = "it names filters, diff or merge drivers that git runs on the host"
	reasonSubmodule = "a submodule: git fetches another repository and obeys what is in it"
	reasonLinkOut   = "the link leads out of the workspace"
	reasonLinkMay   = "the link may lead out of the workspace"
	reasonLinkHeld  = "the link leads to a path that is held back"
)

// maxTreeLinks bounds the links that are followed in a tree.
const maxTreeLinks = 10_000

// HoldTree finds what Apply would hold back among the files of a tree of git's.
type HoldTree struct {
	bits  map[string]int    // directory → bits of the names in it that make a repository
	links map[string]string // target by path
	asked int
}

// Beside makes one of no files yet, which may come into the same directories: what is half a
// repository here and half one there is one in both.
func (t *HoldTree) Beside() *HoldTree {
	return &HoldTree{bits: t.bits, links: map[string]string{}}
}

// NewHoldTree makes one of no files.
func NewHoldTree() *HoldTree {
	return &HoldTree{bits: map[string]int{}, links: map[string]string{}}
}

// Add tells of what there is at a path, be it a file or a directory.
func (t *HoldTree) Add(p string) {
	dir, name := splitPath(p)
	if bit := bareBit(foldName(name)); bit != 0 {
		t.bits[strings.Clone(dir)] |= bit
	}
}

// AddLink tells where a link leads.
func (t *HoldTree) AddLink(p, target string) { t.links[p] = target }

// HeldDir returns why a directory is held back for what is in it, or "". The tree's own is ".".
func (t *HoldTree) HeldDir(dir string) string {
	if isBare(t.bits[dir]) {
		return reasonBare
	}
	return ""
}

// HeldLink returns why a link is held back for where it leads, or "". All of the tree's
// links are to be added before.
func (t *HoldTree) HeldLink(p string) string {
	if t.asked++; t.asked > maxTreeLinks {
		return reasonLinkMay
	}
	target := t.links[p]
	if reason := linkReason(p, target); reason != "" {
		return reason
	}
	dir, _ := splitPath(p)
	w := &linkWalk{t.targets, maxLinkSteps}
	reason, _, _ := strings.Cut(w.along(dir, strings.Split(target, "/")), ", by ")
	return reason
}

func (t *HoldTree) targets(p string) (targets []string, reason string) {
	if target, ok := t.links[p]; ok {
		return []string{target}, ""
	}
	return nil, ""
}

// IsAttributes reports whether git may take a path for a .gitattributes.
func IsAttributes(p string) bool { return isAttributes(p) }

// HeldAttributes returns why a .gitattributes of this text is held back, or "". Without a text
// that can be read, whole is false.
func HeldAttributes(text []byte, whole bool) string {
	if !whole || drivers(text) {
		return reasonDrivers
	}
	return ""
}

// HeldSubmodule is why a submodule is held back.
func HeldSubmodule() string { return reasonSubmodule }

// HoldRank orders reasons: first what runs by itself wherever git does, or leads elsewhere.
func HoldRank(reason string) int {
	first := []string{
		reasonBare, reasonGit, reasonDrivers, reasonLinkOut, reasonLinkHeld, reasonLinkMay, reasonSubmodule, reasonVCS, reasonHooks,
		reasonProject, reasonShell, reasonStartup, reasonEditor, reasonAgent, reasonContainer, reasonCI,
	}
	if i := slices.Index(first, reason); i >= 0 {
		return i
	}
	return len(first)
}
