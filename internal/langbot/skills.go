package langbot

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/skill"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// skillQuery is what the actions of skills have in their data, each some of it.
type skillQuery struct {
	Name    string          `json:"name"`
	Skill   json.RawMessage `json:"skill"`
	Path    *string         `json:"path"`
	Content string          `json:"content"`
	Hidden  bool            `json:"include_hidden"`
	Max     int             `json:"max_entries"`

	FileKey  string   `json:"file_key"`
	Filename *string  `json:"filename"`
	Subdir   *string  `json:"source_subdir"`
	Suffix   *string  `json:"target_suffix"`
	Paths    []string `json:"source_paths"`
	SubPath  *string  `json:"source_path"`
}

// skills opens the store of the tenant's skills and reads the query.
func (c call) skills() (Skills, skillQuery, error) {
	var q skillQuery
	if err := c.fields(&q); err != nil {
		return nil, q, err
	}
	if c.h.o.Skills == nil {
		return nil, q, sandbox.Errorf(sandbox.Unsupported, "this runtime keeps no skills")
	}
	s, err := c.h.o.Skills(c.caller.Owner)
	return s, q, err
}

// invalid gives an error of a skill the class that the original has for all of
// them, but for those that are nobody's fault.
func invalid(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind != sandbox.Internal && e.Kind != sandbox.Invalid {
		return fault.Invalid("%s", e.Msg).WithHint("%s", e.Hint)
	}
	return err
}

// withSkills answers with what do makes of the tenant's store.
func withSkills[T any](c call, do func(s Skills, q skillQuery) (T, error)) (any, error) {
	s, q, err := c.skills()
	if err != nil {
		return nil, invalid(err)
	}
	out, err := do(s, q)
	if err != nil {
		return nil, invalid(err)
	}
	return out, nil
}

// one and many are the answers about skills.
type (
	one struct {
		Skill *sessions.Skill `json:"skill"`
	}
	many struct {
		Skills []sessions.Skill `json:"skills"`
	}
)

func oneOf(s sessions.Skill, err error) (one, error) { return one{&s}, err }

func manyOf(s []sessions.Skill, err error) (many, error) {
	if s == nil {
		s = []sessions.Skill{}
	}
	return many{s}, err
}

func listSkills(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, _ skillQuery) (many, error) { return manyOf(s.List(ctx)) })
}

func getSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (one, error) {
		got, err := s.Get(ctx, q.Name)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return one{}, nil
		}
		return oneOf(got, err)
	})
}

// input reads what a skill is to be; fields of what a host lists, and sends
// back with it, are no fault.
func (q skillQuery) input() (in sessions.SkillInput, err error) {
	if len(q.Skill) == 0 {
		return in, fault.Invalid("skill is missing")
	}
	if err := strict.Known(q.Skill, &in); err != nil {
		return in, fault.Invalid("skill: a field has the wrong type")
	}
	return in, nil
}

func createSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (one, error) {
		in, err := q.input()
		if err != nil {
			return one{}, err
		}
		out, done := c.outside(ctx)
		defer done()
		return oneOf(s.Create(ctx, in, out))
	})
}

// outside is what a tenant may take skills from: what its workspace has. done
// is to be called when that is over.
func (c call) outside(ctx context.Context) (out skill.Outside, done func()) {
	if c.h.o.Outside == nil {
		return nil, func() {}
	}
	var over []func()
	open := func(path string) (*os.Root, error) {
		c.h.declare(c.tenant, path)
		dir, done, err := c.h.o.Outside(ctx, c.caller.Owner, path)
		if done != nil {
			over = append(over, done)
		}
		return dir, err
	}
	return open, func() {
		for _, f := range over {
			f()
		}
	}
}

func updateSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (one, error) {
		in, err := q.input()
		if err != nil {
			return one{}, err
		}
		return oneOf(s.Update(ctx, q.Name, in))
	})
}

func deleteSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (sessions.SkillDeleted, error) { return s.Delete(ctx, q.Name) })
}

func scanSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (sessions.Skill, error) {
		out, done := c.outside(ctx)
		defer done()
		return s.Scan(ctx, orElse(q.Path, ""), out)
	})
}

func skillFiles(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (sessions.SkillFiles, error) {
		return s.Files(ctx, q.Name, skill.FileQuery{Path: orElse(q.Path, "."), Hidden: q.Hidden, Max: q.Max})
	})
}

func readSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (sessions.SkillContent, error) {
		return s.Read(ctx, q.Name, orElse(q.Path, ""))
	})
}

func writeSkill(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (sessions.SkillWritten, error) {
		return s.Write(ctx, q.Name, orElse(q.Path, ""), q.Content)
	})
}

// zip takes the archive that was sent before, and says what of it is meant.
func (c call) zip(q skillQuery) ([]byte, skill.ZipQuery, error) {
	zip, err := c.peer.TakeFile(q.FileKey)
	if err != nil {
		return nil, skill.ZipQuery{}, fault.Invalid("file_key: %v", err)
	}
	out := skill.ZipQuery{
		Filename: orElse(q.Filename, "skill.zip"), Subdir: orElse(q.Subdir, ""),
		Suffix: orElse(q.Suffix, skill.DefaultSuffix), Paths: q.Paths,
	}
	if p := orElse(q.SubPath, ""); p != "" && len(out.Paths) == 0 {
		out.Paths = []string{p}
	}
	return zip, out, nil
}

func previewZip(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (many, error) {
		zip, zq, err := c.zip(q)
		if err != nil {
			return many{}, err
		}
		return manyOf(s.PreviewZip(ctx, zip, zq))
	})
}

func installZip(ctx context.Context, c call) (any, error) {
	return withSkills(c, func(s Skills, q skillQuery) (many, error) {
		zip, zq, err := c.zip(q)
		if err != nil {
			return many{}, err
		}
		return manyOf(s.InstallZip(ctx, zip, zq))
	})
}

func orElse(s *string, def string) string {
	if s == nil {
		return def
	}
	return *s
}
