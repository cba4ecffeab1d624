package server

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxSkillZip is the size of the largest archive of skills that is read.
const maxSkillZip = 20 << 20

// Skills keeps what agents are taught from, each owner's apart.
type Skills interface {
	Skills(ctx context.Context, c SessionCaller) ([]box.Skill, error)
	Skill(ctx context.Context, c SessionCaller, name string) (box.Skill, error)
	RemoveSkill(ctx context.Context, c SessionCaller, name string) error
	InstallSkills(ctx context.Context, c SessionCaller, up SkillUpload) ([]box.Skill, error)
}

// SkillUpload is an archive of skills, and what of it is meant.
type SkillUpload struct {
	Zip          []byte
	Filename     string // skills without a name are called after it
	SourceSubdir string // where in the archive they are looked for; "": everywhere
	SourcePaths  []string
	TargetSuffix string
	Preview      bool // nothing is installed
}

func (s *Server) listSkills(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	out := box.SkillList{Skills: []box.Skill{}}
	if err == nil {
		var list []box.Skill
		list, err = all.Skills(r.Context(), c)
		out.Skills = append(out.Skills, list...)
	}
	s.logInternal("list skills", err)
	answer(w, http.StatusOK, out, err)
}

func (s *Server) getSkill(w http.ResponseWriter, r *http.Request) {
	onSkill(s, w, r, func(all Sessions, c SessionCaller, name string) (box.Skill, error) {
		return all.Skill(r.Context(), c, name)
	})
}

func (s *Server) deleteSkill(w http.ResponseWriter, r *http.Request) {
	onSkill(s, w, r, func(all Sessions, c SessionCaller, name string) (deleted, error) {
		return deleted{name}, all.RemoveSkill(r.Context(), c, name)
	})
}

func onSkill[T any](s *Server, w http.ResponseWriter, r *http.Request, do func(all Sessions, c SessionCaller, name string) (T, error)) {
	all, c, err := s.sessions(r)
	var name string
	if err == nil {
		name, err = sessionKey(r, "name")
	}
	var out T
	if err == nil {
		out, err = do(all, c, name)
	}
	s.logInternal("skill", err)
	answer(w, http.StatusOK, out, err)
}

func (s *Server) postSkills(w http.ResponseWriter, r *http.Request) {
	all, c, err := s.sessions(r)
	var up SkillUpload
	if err == nil {
		up, err = skillUpload(r)
	}
	out := box.SkillList{Skills: []box.Skill{}}
	if err == nil {
		var list []box.Skill
		list, err = all.InstallSkills(r.Context(), c, up)
		out.Skills = append(out.Skills, list...)
	}
	s.logInternal("install skills", err)
	answer(w, http.StatusOK, out, err)
}

func skillUpload(r *http.Request) (SkillUpload, error) {
	query, err := query(r, "filename", "source_subdir", "target_suffix", "preview", "source_path")
	if err != nil {
		return SkillUpload{}, err
	}
	if r.Header.Get("Content-Type") != "application/zip" {
		return SkillUpload{}, sandbox.Errorf(sandbox.Invalid, "body: its Content-Type is not application/zip")
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxSkillZip+1))
	if err != nil {
		return SkillUpload{}, sandbox.Errorf(sandbox.Invalid, "body: it could not be read")
	}
	if len(b) > maxSkillZip {
		return SkillUpload{}, sandbox.Errorf(sandbox.Invalid, "body: larger than %d bytes", maxSkillZip)
	}
	q := url.Values(query)
	preview, err := truth("preview", q["preview"])
	if err != nil {
		return SkillUpload{}, err
	}
	return SkillUpload{
		Zip: b, Filename: q.Get("filename"), SourceSubdir: q.Get("source_subdir"), SourcePaths: q["source_path"],
		TargetSuffix: q.Get("target_suffix"), Preview: preview,
	}, nil
}
