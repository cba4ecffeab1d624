package skill

import (
	"context"
	"crypto/rand"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Create makes a package, or takes one in: a directory below the store
// becomes one where it is, one outside, which out must allow, is copied. What
// in leaves blank is as the package that is taken in has it.
func (s *Store) Create(ctx context.Context, in sessions.SkillInput, out Outside) (sessions.Skill, error) {
	name, err := checkName(in.Name)
	if err != nil {
		return sessions.Skill{}, err
	}
	if s.reserved(name) {
		return sessions.Skill{}, invalid("Skill name %q is reserved", name)
	}
	var k sessions.Skill
	err = s.change(ctx, func(dir *os.Root) error {
		_, _, err := s.lookup(ctx, dir, name)
		if err == nil {
			return sandbox.Errorf(sandbox.Conflict, "Skill with name %q already exists", name)
		}
		if sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
		rel, err := s.make(ctx, dir, name, in, out)
		if err != nil {
			return err
		}
		k, err = s.at(dir, rel)
		return err
	})
	if err != nil {
		return sessions.Skill{}, s.fault("create skill "+name, err)
	}
	return k, nil
}

// at loads the package of a directory.
func (s *Store) at(dir *os.Root, rel string) (sessions.Skill, error) {
	entry := entryOf(dir, rel)
	if entry == "" {
		return sessions.Skill{}, invalid("No SKILL.md found in %s", describe(s.shown(rel)))
	}
	return load(dir, found{rel, entry}, s.shown(rel))
}

// make does what Create is asked for, and returns where the package is.
func (s *Store) make(ctx context.Context, dir *os.Root, name string, in sessions.SkillInput, out Outside) (string, error) {
	root := strings.TrimSpace(in.PackageRoot)
	if root != "" {
		if rel, ok := s.within(root); ok {
			return rel, s.adopt(dir, rel, name, in)
		}
	}
	if root == "" {
		if st, err := dir.Lstat(name); err == nil && st.IsDir() && entryOf(dir, name) == "" {
			return name, s.rewrite(dir, found{name, entryNames[0]}, sessions.Skill{Name: name}, in)
		}
	}
	return name, staged(dir, func(stage string) error {
		base := sessions.Skill{Name: name}
		at := found{path.Join(stage, "pkg"), entryNames[0]}
		if err := dir.Mkdir(at.dir, 0o755); err != nil {
			return err
		}
		if root != "" {
			err := s.source(root, out, "package_root", func(from *os.Root, shown string) (err error) {
				at.entry, base, err = s.copyIn(ctx, dir, from, at.dir, shown)
				return err
			})
			if err != nil {
				return err
			}
			base.Name = name
		}
		if err := s.rewrite(dir, at, base, in); err != nil {
			return err
		}
		return place(dir, []move{{from: at.dir, To: name}})
	})
}

// copyIn copies a package from outside, and returns what it says of itself.
func (s *Store) copyIn(ctx context.Context, dir, from *os.Root, to, shown string) (string, sessions.Skill, error) {
	entry := entryOf(from, ".")
	if entry == "" {
		return "", sessions.Skill{}, invalid("No SKILL.md found in %s", describe(shown))
	}
	base, err := load(from, found{".", entry}, shown)
	if err != nil {
		return "", sessions.Skill{}, err
	}
	in, err := openBelow(dir, to)
	if err != nil {
		return "", sessions.Skill{}, err
	}
	defer in.Close()
	return entry, base, copyTree(ctx, from, in)
}

// adopt makes a directory of the store a package where it is.
func (s *Store) adopt(dir *os.Root, rel, name string, in sessions.SkillInput) error {
	top, _, _ := strings.Cut(rel, "/")
	if st, err := dir.Stat(rel); err != nil || !st.IsDir() {
		return noDirectory(s.shown(rel))
	}
	if rel == "." || s.reserved(top) {
		return invalid("package_root %s is no directory of a package", describe(s.shown(rel)))
	}
	if strings.Count(rel, "/") >= listDepth {
		return invalid("package_root %s is more than %d directories below the skill root, where it would not be found", describe(s.shown(rel)), listDepth)
	}
	for above := path.Dir(rel); above != "."; above = path.Dir(above) {
		if entryOf(dir, above) != "" {
			return invalid("package_root %s is a part of the package %s", describe(s.shown(rel)), describe(s.shown(above)))
		}
	}
	base, err := s.at(dir, rel)
	if err != nil {
		return err
	}
	at := found{rel, base.EntryFile}
	base.Name = name
	return s.rewrite(dir, at, base, in)
}

// rewrite writes a package's SKILL.md: what is given, else what base has.
func (s *Store) rewrite(dir *os.Root, at found, base sessions.Skill, in sessions.SkillInput) error {
	m := Meta{Name: base.Name, DisplayName: given(in.DisplayName, base.DisplayName), Description: given(in.Description, base.Description)}
	return s.entry(dir, at, m, given(in.Instructions, base.Instructions))
}

// given is what was given, unless that is blank.
func given(v *string, otherwise string) string {
	if v == nil || strings.TrimSpace(*v) == "" {
		return otherwise
	}
	return *v
}

func (s *Store) entry(dir *os.Root, at found, m Meta, instructions string) error {
	text := BuildMarkdown(m, instructions)
	if len(text) > maxText {
		return invalid("Skill entry file %s exceeds the %d-byte limit", at.entry, maxText)
	}
	if got, _, err := ParseFrontMatter(text); err != nil || got.Name != m.Name {
		return invalid("Skill front matter can't hold these values: use shorter text, in UTF-8")
	}
	pkg, err := openBelow(dir, at.dir)
	if err != nil {
		return err
	}
	defer pkg.Close()
	return putFile(dir, pkg, at.entry, []byte(text), 0o644)
}

// Update changes what a package says of itself, and its instructions; what
// is nil stays. Its name and its directory can't be changed.
func (s *Store) Update(ctx context.Context, name string, in sessions.SkillInput) (sessions.Skill, error) {
	var k sessions.Skill
	err := s.change(ctx, func(dir *os.Root) error {
		f, old, err := s.lookup(ctx, dir, name)
		if err != nil {
			return err
		}
		if to := strings.TrimSpace(in.Name); to != "" && to != old.Name {
			return invalid("Renaming skills is not supported: %s can't become %.80q", name, to)
		}
		if root := strings.TrimSpace(in.PackageRoot); root != "" {
			if rel, ok := s.within(root); !filepath.IsAbs(root) || !ok || path.Clean(rel) != f.dir {
				return invalid("Updating package_root is not supported; recreate the skill to import a different package")
			}
		}
		m := Meta{Name: old.Name, DisplayName: old.DisplayName, Description: old.Description}
		for to, v := range map[*string]*string{&m.DisplayName: in.DisplayName, &m.Description: in.Description, &old.Instructions: in.Instructions} {
			if v != nil {
				*to = *v
			}
		}
		if err := s.entry(dir, f, m, old.Instructions); err != nil {
			return err
		}
		k, err = s.at(dir, f.dir)
		return err
	})
	if err != nil {
		return sessions.Skill{}, s.fault("update skill "+printable(name), err)
	}
	return k, nil
}

// Delete removes a package, and the directory at the store's top that it is
// in, unless that has other packages too.
func (s *Store) Delete(ctx context.Context, name string) (sessions.SkillDeleted, error) {
	err := s.change(ctx, func(dir *os.Root) error {
		f, _, err := s.lookup(ctx, dir, name)
		if err != nil {
			return err
		}
		if f.dir == "." {
			return invalid("Only managed skills under the Box skills root can be deleted: %s is the root itself", name)
		}
		gone, _, _ := strings.Cut(f.dir, "/")
		all, err := find(dir, search{depth: listDepth, skills: maxSkills, entries: maxSeen, skip: s.reserved})
		if err != nil {
			return err
		}
		for _, other := range all {
			if other.dir != f.dir && strings.HasPrefix(other.dir, gone+"/") {
				gone = f.dir
				break
			}
		}
		// A directory for it would need room, and it is what makes some.
		out := path.Join(ownDir, gonePrefix+rand.Text())
		if err := dir.Rename(gone, out); err != nil {
			return err
		}
		step("gone")
		if err := dir.RemoveAll(out); err != nil {
			s.keep.log.Warn("remove a deleted skill", "error", err) // the next change does
		}
		return nil
	})
	if err != nil {
		return sessions.SkillDeleted{}, s.fault("delete skill "+printable(name), err)
	}
	return sessions.SkillDeleted{Deleted: name}, nil
}
