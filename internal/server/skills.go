package server

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// maxSkillZip is the size of the largest archive of skills that is read.
const maxSkillZip = 20 << 20

// Skills keeps what agents are taught from, each owner's apart.
type Skills interface {
	Skills(ctx context.Context, c access.Caller) ([]sessions.Skill, error)
	Skill(ctx context.Context, c access.Caller, name string) (sessions.Skill, error)
	RemoveSkill(ctx context.Context, c access.Caller, name string) error
	InstallSkills(ctx context.Context, c access.Caller, up access.Upload) ([]sessions.Skill, error)
}

func (s *Server) listSkills(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	out := sessions.SkillList{Skills: []sessions.Skill{}}
	if err == nil {
		var list []sessions.Skill
		list, err = all.Skills(r.Context(), c)
		out.Skills = append(out.Skills, list...)
	}
	answer(w, http.StatusOK, out, err)
}

func (s *Server) getSkill(w http.ResponseWriter, r *http.Request) {
	onKey(s, w, r, "name", func(all Sessions, c access.Caller, name string) (sessions.Skill, error) {
		return all.Skill(r.Context(), c, name)
	})
}

func (s *Server) deleteSkill(w http.ResponseWriter, r *http.Request) {
	onKey(s, w, r, "name", func(all Sessions, c access.Caller, name string) (deleted, error) {
		return deleted{name}, all.RemoveSkill(r.Context(), c, name)
	})
}

func (s *Server) postSkills(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	var up access.Upload
	if err == nil {
		up, err = skillUpload(r)
	}
	out := sessions.SkillList{Skills: []sessions.Skill{}}
	if err == nil {
		var list []sessions.Skill
		list, err = all.InstallSkills(r.Context(), c, up)
		out.Skills = append(out.Skills, list...)
	}
	answer(w, http.StatusOK, out, err)
}

func skillUpload(r *http.Request) (access.Upload, error) {
	query, err := query(r, "filename", "source_subdir", "target_suffix", "preview", "source_path")
	if err != nil {
		return access.Upload{}, err
	}
	if r.Header.Get("Content-Type") != "application/zip" {
		return access.Upload{}, sandbox.Errorf(sandbox.Invalid, "body: its Content-Type is not application/zip").WithHint("send the header Content-Type: application/zip")
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxSkillZip+1))
	if err != nil {
		return access.Upload{}, sandbox.Errorf(sandbox.Invalid, "body: it could not be read")
	}
	if len(b) > maxSkillZip {
		return access.Upload{}, sandbox.Errorf(sandbox.Invalid, "body: larger than %d bytes", maxSkillZip)
	}
	q := url.Values(query)
	preview, err := truth("preview", q["preview"])
	if err != nil {
		return access.Upload{}, err
	}
	return access.Upload{Zip: b, Preview: preview, ZipQuery: skill.ZipQuery{
		Filename: q.Get("filename"), Subdir: q.Get("source_subdir"), Paths: q["source_path"],
		Suffix: cmp.Or(q.Get("target_suffix"), skill.DefaultSuffix),
	}}, nil
}
