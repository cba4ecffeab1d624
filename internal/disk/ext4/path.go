package ext4

import (
	"io/fs"
	"strings"
)

const (
	// maxLinks is how many symbolic links one path may lead over.
	maxLinks = 40
	// maxPath bounds a path, in bytes.
	maxPath = 64 << 10
)

// Walk finds the inode of a path, from the root directory. Symbolic links on the way are
// followed, within the image: the root is above all of it. One at the end is not, unless a
// slash comes after it. It is fs.ErrNotExist where a part is missing.
func (f *FS) Walk(path string) (*Inode, error) {
	if len(path) > maxPath {
		return nil, &Error{Kind: fs.ErrInvalid, Detail: "the path is too long"}
	}
	root, err := f.Root()
	if err != nil {
		return nil, err
	}
	// The directories from the root to where the walk is, which .. goes up by: a directory's
	// own word on its parent is not asked for.
	above := []*Inode{root}
	links := 0
	rest := path
	for {
		var name string
		name, rest = nextPart(rest)
		at := above[len(above)-1]
		switch name {
		case "":
			return at, nil
		case ".", "..":
			if at.Type() != Directory {
				return nil, &Error{Inode: at.Number, Kind: ErrNotDirectory}
			}
			if name == ".." {
				above = above[:max(1, len(above)-1)]
			}
			continue
		}
		next, err := at.Lookup(name)
		if err != nil {
			return nil, err
		}
		if next.Type() != Symlink || rest == "" {
			above = append(above, next)
			continue
		}
		if links++; links > maxLinks {
			return nil, &Error{Inode: next.Number, Kind: ErrLinks}
		}
		target, err := next.Readlink()
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(target, "/") {
			above = above[:1]
		}
		if rest = target + "/" + strings.TrimLeft(rest, "/"); len(rest) > maxPath {
			return nil, &Error{Inode: next.Number, Kind: ErrLinks, Detail: "the path becomes too long"}
		}
	}
}

// nextPart cuts a path after its first part. What remains begins with a slash where there was
// one; it is empty where the part was the last.
func nextPart(path string) (name, rest string) {
	path = strings.TrimLeft(path, "/")
	if n := strings.IndexByte(path, '/'); n >= 0 {
		return path[:n], path[n:]
	}
	return path, ""
}
