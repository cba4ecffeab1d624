package access

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
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
func (a *Access) Skills(ctx context.Context, c Caller) ([]sessions.Skill, error) {
	s, err := a.skills(c)
	if err != nil {
		return nil, err
	}
	list, err := s.List(ctx)
	return c.told(list), err
}

// skillMounts are those of the caller's skills, which the session has.
func (a *Access) skillMounts(ctx context.Context, c Caller) []sessions.Mount {
	if a.o.Skills == nil {
		return []sessions.Mount{}
	}
	c.HostPaths = true // it mounts them
	list, err := a.Skills(ctx, c)
	if err != nil {
		a.o.Log.Warn("list skills", "owner", c.Owner, "error", err)
	}
	return profile.SkillMounts(list, true, a.o.Log)
}

// told takes out of skills what only who may name directories of the host is
// told: where they lie.
func (c Caller) told(list []sessions.Skill) []sessions.Skill {
	for i := range list {
		if !c.HostPaths {
			list[i].PackageRoot = ""
		}
	}
	return list
}

// Skill returns one skill.
func (a *Access) Skill(ctx context.Context, c Caller, name string) (sessions.Skill, error) {
	s, err := a.skills(c)
	if err != nil {
		return sessions.Skill{}, err
	}
	one, err := s.Get(ctx, name)
	return c.told([]sessions.Skill{one})[0], err
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
func (a *Access) InstallSkills(ctx context.Context, c Caller, up Upload) ([]sessions.Skill, error) {
	s, err := a.skills(c)
	if err != nil {
		return nil, err
	}
	do := s.InstallZip
	if up.Preview {
		do = s.PreviewZip
	}
	list, err := do(ctx, up.Zip, up.ZipQuery)
	return c.told(list), err
}
