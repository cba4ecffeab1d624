package workspace

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/term"
)

// maxLinkSteps bounds how many names are looked at for one link.
const maxLinkSteps = 512

// linkWalk follows a link of the sandbox's over names that may be links
// themselves. What the base has there and what the sandbox has are both
// followed: which of them it will be depends on what else is applied.
type linkWalk struct {
	c    *comparer
	left int // names to look at
}

// throughLinks returns why a symlink at p is held back for the links that its
// target leads through, or "".
func (c *comparer) throughLinks(p, target string) string {
	dir, _ := splitPath(p)
	w := &linkWalk{c, maxLinkSteps}
	return w.along(dir, strings.Split(target, "/"))
}

// along goes from dir, which is reached by no link, along names.
func (w *linkWalk) along(dir string, names []string) string {
	for i, name := range names {
		if w.left--; w.left < 0 {
			return "the link may lead out of the workspace"
		}
		switch name {
		case "", ".":
			continue
		case "..":
			if dir == "." {
				return "the link leads out of the workspace"
			}
			dir, _ = splitPath(dir)
			continue
		}
		dir = joinPath(dir, name)
		if heldByName(dir) != "" {
			return "the link leads to a path that is held back"
		}
		targets, reason := w.targets(dir)
		if reason != "" {
			return reason
		}
		for _, target := range targets {
			if strings.HasPrefix(target, "/") {
				return "the link leads out of the workspace, by " + term.Escape(dir)
			}
			up, _ := splitPath(dir)
			rest := append(strings.Split(target, "/"), names[i+1:]...)
			if reason := w.along(up, rest); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// targets returns where p leads, if it is a link: here, and in the sandbox.
func (w *linkWalk) targets(p string) (targets []string, reason string) {
	st, err := w.c.base.stat(p)
	if err == nil && st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		var target string
		target, err = w.c.base.readlink(p)
		targets = append(targets, target)
	}
	if err != nil {
		return nil, "the link may lead out of the workspace: " + reasonFor(err)
	}
	if e := w.c.set.find(p); e != nil && e.Kind == Symlink {
		targets = append(targets, e.Target)
	}
	return targets, ""
}
