package service

import (
	"context"
	"os"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
)

// SkillMounts returns the mounts of a query's skills, below box.SkillsPath. A
// skill without a directory is none. Where the file system is shared, one whose
// directory is missing is left out with a warning; elsewhere the runtime's word
// is taken for it.
func (s *Service) SkillMounts(ctx context.Context, q Query) []sessions.Mount {
	list := []sessions.Mount{}
	if s.o.Skills == nil {
		return list
	}
	here := s.SharesFilesystem()
	for _, skill := range s.o.Skills(ctx, q) {
		root := strings.TrimSpace(skill.PackageRoot)
		switch {
		case root == "":
			continue
		case !profile.ValidSkillName(skill.Name):
			s.o.Log.Warn("skill: not a name, so it is not mounted", "skill", skill.Name)
			continue
		case here && !isDir(root):
			s.o.Log.Warn("skill: package_root missing, so it is not mounted; the list of skills may be stale",
				"skill", skill.Name, "package_root", root)
			continue
		}
		list = append(list, sessions.Mount{HostPath: root, MountPath: tools.SkillsPath + "/" + skill.Name, Mode: sessions.MountWritable})
	}
	return list
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// Get returns a session.
func (s *Service) Get(ctx context.Context, id string) (sessions.SessionInfo, error) {
	if err := s.ready(); err != nil {
		return sessions.SessionInfo{}, err
	}
	return s.o.Runtime.Get(ctx, id)
}

// Delete ends a session.
func (s *Service) Delete(ctx context.Context, id string) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.o.Runtime.Delete(ctx, id)
}

// StartProcess starts a managed process in a session that is there.
func (s *Service) StartProcess(ctx context.Context, id string, p sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	err := s.ready()
	if err == nil {
		err = profile.ValidateProcess(p)
	}
	if err != nil {
		return sessions.ProcessInfo{}, err
	}
	return s.o.Runtime.StartProcess(ctx, id, p)
}

// Process returns a managed process.
func (s *Service) Process(ctx context.Context, id, process string) (sessions.ProcessInfo, error) {
	if err := s.ready(); err != nil {
		return sessions.ProcessInfo{}, err
	}
	return s.o.Runtime.Process(ctx, id, process)
}

// StopProcess ends a managed process.
func (s *Service) StopProcess(ctx context.Context, id, process string) error {
	if err := s.ready(); err != nil {
		return err
	}
	return s.o.Runtime.StopProcess(ctx, id, process)
}
