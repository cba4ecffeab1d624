package access

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/skill"
)

// Upload is an archive of skills, and what of it is meant.
type Upload struct {
	Zip []byte
	skill.ZipQuery
	Preview bool // nothing is installed
}

func (a *Access) skills(c Caller) (*skill.Store, error) {
	if a.o.Skills == nil {
		return nil, sandbox.Errorf(sandbox.Unsupported, "skills: this daemon keeps none")
	}
	return a.o.Skills.Of(c.Owner)
}

// Skills lists the caller's skills, newest first.
func (a *Access) Skills(ctx context.Context, c Caller) ([]box.Skill, error) {
	s, err := a.skills(c)
	if err != nil {
		return nil, err
	}
	return s.List(ctx)
}

// Skill returns one skill.
func (a *Access) Skill(ctx context.Context, c Caller, name string) (box.Skill, error) {
	s, err := a.skills(c)
	if err != nil {
		return box.Skill{}, err
	}
	return s.Get(ctx, name)
}

// RemoveSkill deletes a skill.
func (a *Access) RemoveSkill(ctx context.Context, c Caller, name string) error {
	s, err := a.skills(c)
	if err == nil {
		_, err = s.Delete(ctx, name)
	}
	return err
}

// InstallSkills installs the skills of an archive, all or none.
func (a *Access) InstallSkills(ctx context.Context, c Caller, up Upload) ([]box.Skill, error) {
	s, err := a.skills(c)
	if err != nil {
		return nil, err
	}
	if up.Preview {
		return s.PreviewZip(ctx, up.Zip, up.ZipQuery)
	}
	return s.InstallZip(ctx, up.Zip, up.ZipQuery)
}
