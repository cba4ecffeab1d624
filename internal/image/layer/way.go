package layer

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the links that one name may lead through, as the kernel does.
const maxLinks = 40

// spot is a directory that a name leads to, in this layer over those below.
type spot struct {
	rel  string // no part of it is a link; "." is the root
	mine bool   // this layer has it
	// below is the directory of the layers below that shows through, if any.
	below found
}

// way is the directories from the root to one, of which this layer need not have any but the root.
type way []spot

func (w way) end() spot { return w[len(w)-1] }

// trail is a name that was walked, where it led, and what it led through.
type trail struct {
	rel, at string
	via     []string
}

// maxTrail bounds what is remembered of a trail.
const maxTrail = 32

// lead remembers where rel led to: the next entry is often in the same directory.
func (u *unpacker) lead(rel, at string) {
	u.last = trail{}
	if len(u.via) <= maxTrail {
		u.last = trail{rel, at, slices.Clone(u.via)}
	}
}

// changed forgets the trail where it leads through at, which is something else now.
func (u *unpacker) changed(at string) {
	if slices.Contains(u.last.via, at) {
		u.last = trail{}
	}
}

// walk finds the directory that rel leads to. Links are followed, whichever layer made them; the
// root is where "/" and ".." end. What is nowhere yet is taken for a directory to be made, and
// so is a file of the layers below.
func (u *unpacker) walk(rel string) (way, error) {
	root := spot{rel: ".", mine: true}
	if !u.hiding["."] {
		root.below = u.root
	}
	w := way{root}
	u.via = u.via[:0]
	todo := strings.Split(rel, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			w = w[:max(1, len(w)-1)]
			continue
		}
		next, target, err := u.step(w.end(), part)
		switch {
		case err != nil:
			return nil, err
		case target == "" && len(w) > maxDepth:
			return nil, refuse("its parent %s leads to more than %d components", quote(rel), maxDepth)
		case target == "":
			w = append(w, next)
			continue
		}
		if links++; links > maxLinks {
			return nil, refuse("its parent %s leads through more than %d links", quote(rel), maxLinks)
		}
		if target[0] == '/' {
			w = w[:1]
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return w, nil
}

// step goes from a directory to what has a name there. Where that is a link it returns its text.
func (u *unpacker) step(here spot, name string) (next spot, target string, err error) {
	next.rel = path.Join(here.rel, name)
	u.via = append(u.via, next.rel)
	if len(name) > maxComponent || len(next.rel) >= u.o.Limits.Path {
		return spot{}, "", refuse("its parent leads to %s, which is too long", quote(next.rel))
	}
	if here.mine {
		if err := u.below.step(); err != nil {
			return spot{}, "", err
		}
		dir, err := u.tree.open(here.rel)
		if err != nil {
			return spot{}, "", fmt.Errorf("open: %w", err)
		}
		st, err := lstat(dir, name)
		switch {
		case is(err, unix.ENOENT):
		case err != nil:
			return spot{}, "", fmt.Errorf("look at a parent: %w", err)
		case isWhiteout(&st):
			return next, "", nil
		case kind(&st) == unix.S_IFLNK:
			target, err = readlink(dir, name)
			return next, target, err
		case kind(&st) != unix.S_IFDIR:
			return spot{}, "", refuse("its parent %s is no directory", quote(next.rel))
		case u.hiding[next.rel]:
			next.mine = true
			return next, "", nil
		default:
			next.mine = true
		}
	}
	f, err := u.below.look(here.below.trees, next.rel)
	switch {
	case err != nil:
	case f.is(unix.S_IFDIR):
		next.below = f
	case f.is(unix.S_IFLNK) && !next.mine:
		target, err = u.below.readlink(f.tree, next.rel)
	}
	return next, target, err
}

// make makes the directories of a way that this layer has not, and opens the last. Each that the
// layers below have stays as it is there.
func (u *unpacker) make(w way) (int, error) {
	for i, s := range w {
		if s.mine {
			continue
		}
		above, err := u.tree.open(w[i-1].rel)
		if err != nil {
			return -1, fmt.Errorf("open: %w", err)
		}
		if err := u.imply(above, s); err != nil {
			return -1, err
		}
	}
	return u.tree.open(w.end().rel)
}

// imply makes a directory that the layer does not list.
func (u *unpacker) imply(above int, s spot) error {
	if err := u.count(); err != nil {
		return err
	}
	name := path.Base(s.rel)
	err := unix.Mkdirat(above, name, newDir)
	if is(err, unix.EEXIST) { // a whiteout, or the way would not have led here
		err = u.replaceByDir(above, name, s.rel)
	}
	if err != nil {
		return err
	}
	if s.below.trees == nil {
		return u.later(s.rel, implied)
	}
	err = in(s.below.tree, s.rel, func(dir int, name string) error {
		from, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("open a directory below: %w", err)
		}
		defer unix.Close(from)
		to, err := openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(to)
		return copyXattrs(from, to)
	})
	if err != nil {
		return err
	}
	return u.later(s.rel, metaOf(&s.below.st))
}

// shown returns what the layers below show at at, which leads through no link.
func (u *unpacker) shown(at string) (found, error) {
	w, err := u.walk(path.Dir(at))
	if err != nil {
		return found{}, err
	}
	return u.below.look(w.end().below.trees, at)
}
