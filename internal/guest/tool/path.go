package tool

import (
	"errors"
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/api/tools"
)

// maxPath is the kernel's limit, with the NUL that it counts.
const maxPath = 4096

func cleanRoot(root string) (string, error) {
	if !path.IsAbs(root) || strings.IndexByte(root, 0) >= 0 || len(root) >= maxPath {
		return "", errors.New("it must be an absolute path")
	}
	return path.Clean(root), nil
}

// place returns what p means: relative to the root, and whole. One that does
// not begin with a slash is below the root. ".." is resolved in the text.
func (c *call) place(p string) (rel, abs string, err error) {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", "", failf(tools.ToolInvalid, "a path can't hold a NUL byte")
	case len(p) >= maxPath:
		return "", "", failf(tools.ToolInvalid, "the path is longer than %d bytes", maxPath-1)
	case p == "":
		p = c.root
	case !path.IsAbs(p):
		p = c.root + "/" + p // not joined: ".." may lead out
	}
	abs = path.Clean(p)
	if abs == c.root {
		return ".", abs, nil
	}
	below := c.root + "/"
	if c.root == "/" {
		below = "/"
	}
	rel, ok := strings.CutPrefix(abs, below)
	if !ok {
		return "", "", failf(tools.ToolEscapes, "path escapes the workspace boundary: %s; use a path below %s", short(p), c.root)
	}
	return rel, abs, nil
}

// file is place for a path that must not be the root itself.
func (c *call) file(p string) (rel, abs string, err error) {
	if p == "" {
		return "", "", failf(tools.ToolInvalid, "path is missing")
	}
	rel, abs, err = c.place(p)
	if err == nil && rel == "." {
		err = failf(tools.ToolInvalid, "path must name a file below %s", c.root)
	}
	return rel, abs, err
}

// join returns the path of what is rel below the directory abs.
func join(abs, rel string) string {
	if abs == "/" {
		return "/" + rel
	}
	return abs + "/" + rel
}
