package skill

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// PreviewZip returns the packages of an archive as InstallZip would name
// them, each with its SourcePath.
func (s *Store) PreviewZip(ctx context.Context, zip []byte, q ZipQuery) ([]sessions.Skill, error) {
	var out []sessions.Skill
	err := s.unzipped(ctx, zip, q, func(_ *os.Root, _ string, all []sessions.Skill) error {
		out = all
		return nil
	})
	if err != nil {
		return nil, s.fault("preview an archive", err)
	}
	return out, nil
}

// InstallZip takes in packages of an archive, all that are chosen or none.
func (s *Store) InstallZip(ctx context.Context, zip []byte, q ZipQuery) ([]sessions.Skill, error) {
	var out []sessions.Skill
	err := s.unzipped(ctx, zip, q, func(dir *os.Root, root string, all []sessions.Skill) error {
		chosen, err := choose(all, q.Paths)
		if err != nil {
			return err
		}
		var moves []move
		seen := map[string]bool{}
		for _, k := range chosen {
			to := path.Base(k.PackageRoot)
			if slices.ContainsFunc(moves, func(m move) bool { return m.To == to }) {
				return invalid("Duplicate target directory selected: %s", describe(to))
			}
			if seen[k.Name] {
				return invalid("Two of the selected skills have the name %q: install them one by one", k.Name)
			}
			seen[k.Name] = true
			moves = append(moves, move{from: path.Join(root, *k.SourcePath), To: to})
		}
		if err := place(dir, moves); err != nil {
			return err
		}
		for _, m := range moves {
			k, err := s.at(dir, m.To)
			if err != nil {
				return err
			}
			out = append(out, k)
		}
		return nil
	})
	if err != nil {
		return nil, s.fault("install an archive", err)
	}
	return out, nil
}

// unzipped unpacks an archive beside the packages, and calls fn with where
// those are that it has.
func (s *Store) unzipped(ctx context.Context, data []byte, q ZipQuery, fn func(dir *os.Root, root string, all []sessions.Skill) error) error {
	items, err := readZip(data, zipLimits)
	if err != nil {
		return err
	}
	if err := checkSuffix(q.Suffix); err != nil {
		return err
	}
	sub, err := subdir(items, q.Subdir)
	if err != nil {
		return err
	}
	return s.change(ctx, func(dir *os.Root) error {
		return staged(dir, func(stage string) error {
			root := path.Join(stage, "zip")
			if err := dir.Mkdir(root, 0o755); err != nil {
				return err
			}
			to, err := openBelow(dir, root)
			if err != nil {
				return err
			}
			defer to.Close()
			if err := unzip(ctx, items, to); err != nil {
				return err
			}
			root = path.Join(root, sub)
			all, err := s.previews(dir, root, q)
			if err != nil {
				return err
			}
			return fn(dir, root, all)
		})
	})
}

// subdir returns the directory of an archive that is meant, within which
// packages are looked for. An archive of one directory is that directory.
func subdir(items []item, want string) (string, error) {
	top, _, _ := strings.Cut(items[0].rel, "/")
	for _, it := range items {
		if first, _, below := strings.Cut(it.rel, "/"); first != top || !below && !it.dir {
			top = "."
			break
		}
	}
	clean := strings.Trim(strings.ReplaceAll(strings.TrimSpace(want), `\`, "/"), "/")
	if clean == "" {
		return top, nil
	}
	clean = path.Clean(clean)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", invalid("source_subdir must stay within the uploaded archive")
	}
	sub := path.Join(top, clean)
	if !slices.ContainsFunc(items, func(it item) bool { return it.dir && it.rel == sub || strings.HasPrefix(it.rel, sub+"/") }) && sub != top {
		return "", invalid("source_subdir does not exist in the uploaded archive: %s", describe(clean))
	}
	return sub, nil
}

// previews describes the packages that were unpacked, as they would be once
// they are installed.
func (s *Store) previews(dir *os.Root, root string, q ZipQuery) ([]sessions.Skill, error) {
	in, err := openBelow(dir, root)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all, err := find(in, search{depth: scanDepth, skills: maxSkills, entries: maxSeen})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, invalid("No SKILL.md found in the archive or its subdirectories (max depth: %d)", scanDepth)
	}
	var out []sessions.Skill
	for _, f := range all {
		source := f.dir
		if source == "." {
			source = ""
		}
		to := target(stem(q.Filename), source, q.Suffix)
		if s.reserved(to) {
			return nil, invalid("Skill name %q is reserved: choose another name of the archive, or a target_suffix", to)
		}
		k, err := load(in, f, s.shown(to))
		if err != nil {
			if e, ok := errors.AsType[*sandbox.Error](err); ok {
				return nil, sandbox.Errorf(e.Kind, "%s (in %s of the archive)", e.Msg, describe(path.Join(f.dir, f.entry)))
			}
			return nil, err
		}
		k.SourcePath = &source
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b sessions.Skill) int { return strings.Compare(*a.SourcePath, *b.SourcePath) })
	return out, nil
}

// choose returns the packages that are asked for; of one alone, that one.
func choose(all []sessions.Skill, paths []string) ([]sessions.Skill, error) {
	var want []string
	for _, p := range paths {
		p = strings.Trim(strings.ReplaceAll(strings.TrimSpace(p), `\`, "/"), "/")
		if !slices.Contains(want, p) {
			want = append(want, p)
		}
	}
	list := func() string {
		return candidates(all, func(k sessions.Skill) string { return cmp.Or(*k.SourcePath, ".") })
	}
	if len(want) == 0 {
		if len(all) == 1 {
			return all, nil
		}
		return nil, invalid("Multiple skills found. Please choose one or more source_paths: %s", list())
	}
	var out []sessions.Skill
	for _, p := range want {
		i := slices.IndexFunc(all, func(k sessions.Skill) bool { return *k.SourcePath == p })
		if i < 0 {
			return nil, invalid("Invalid source_path \"%s\". Available: %s", describe(p), list())
		}
		out = append(out, all[i])
	}
	return out, nil
}

// target is the name of the directory that a package of an archive gets.
func target(stem, source, suffix string) string {
	name := stem
	if leaf := safeName(path.Base(source)); source != "" && leaf != "" && leaf != stem {
		name += "-" + leaf
	}
	if suffix != "" {
		name += "-" + suffix
	}
	return name
}

// stem is an archive's file name without its end, made fit to be a name.
func stem(filename string) string {
	name := path.Base(strings.ReplaceAll(strings.TrimSpace(filename), `\`, "/"))
	if ext := path.Ext(name); ext != name {
		name = strings.TrimSuffix(name, ext)
	}
	return cmp.Or(safeName(name), "uploaded-skill")
}

// safeName is a text with what may not be in a name replaced, and cut.
func safeName(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsNumber(r) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToValidUTF8(s, "-"))
	for len(s) > 80 {
		s = s[:strings.LastIndexFunc(s, func(rune) bool { return true })]
	}
	return strings.Trim(s, "-_")
}

func checkSuffix(s string) error {
	if len(s) > maxName || strings.HasPrefix(s, ".") || strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune("-_.", r)
	}) {
		return invalid("target_suffix %.80q can't be part of a name: use letters, digits, -, _ and .", s)
	}
	return nil
}
