package gvisor

import (
	"bytes"
	"fmt"
	"maps"
	"os"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// guestConfig is the guest agent's configuration file.
type guestConfig struct {
	ID           string            `json:"id"`
	Socket       string            `json:"socket"`
	Hide         []string          `json:"hide"`
	User         string            `json:"user"`
	Cwd          string            `json:"cwd"`
	Env          map[string]string `json:"env"`
	PIDs         int64             `json:"pids"`
	AllowRoot    bool              `json:"allow_root"`
	PIDNamespace bool              `json:"pid_namespace"`
	DiskPaths    []string          `json:"disk_paths"`
}

// agentConfig is what the agent of sb is told. Where the caller named no PATH,
// commands search path.
func agentConfig(sb *sandbox.Sandbox, path string) guestConfig {
	env := map[string]string{"PATH": path}
	maps.Copy(env, sb.Spec.Env)
	c := guestConfig{
		ID: sb.ID, Socket: guestControl + "/" + fileSocket, Hide: []string{guestControl},
		User: sb.Spec.User, Env: env, PIDs: sb.Spec.Limits.PIDs,
		AllowRoot: rootAllowed(sb.Spec, sb.Owner), PIDNamespace: true, DiskPaths: []string{"/", "/workspace"},
	}
	if sb.Spec.Workspace.Source.Path != "" {
		c.Cwd = "/workspace"
	}
	return c
}

// rootAllowed reports whether commands may be root in the guest. Over a tree
// of the host's that it can write, guest root would be more than the tree's
// owner is; and of a tree that somebody else named, it would read what that
// one can't.
func rootAllowed(spec sandbox.Spec, owner string) bool {
	dirs := append([]sandbox.Mount{{
		Source: spec.Workspace.Source, ReadOnly: spec.Workspace.Mode != sandbox.WorkspaceWritable,
	}}, spec.Mounts...)
	ours := owner == ourOwner()
	for _, m := range dirs {
		if m.Source.Path != "" && !(m.ReadOnly && ours) {
			return false
		}
	}
	return true
}

// ourOwner is the owner of what this process's own user makes.
func ourOwner() string { return fmt.Sprintf("uid:%d", os.Geteuid()) }

func workspaceDir(w sandbox.Workspace) (planDir, error) {
	d := hostDir(w.Source, string(w.Mode), "/workspace")
	if w.Mode != sandbox.WorkspaceWritable {
		return d, nil
	}
	root, err := openAccepted(d)
	if err != nil {
		return d, err
	}
	defer root.Close()
	d.Protect, err = workspace.ProtectedGitPaths(root)
	return d, err
}

func hostDir(h sandbox.HostDir, mode, target string) planDir {
	return planDir{Mode: mode, Source: h.Path, Dev: h.Dev, Ino: h.Ino, UID: h.UID, GID: h.GID, Target: target}
}

// tailBuffer keeps the last limit bytes that were written to it.
type tailBuffer struct {
	bytes.Buffer
	limit int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.limit {
		p = p[len(p)-t.limit:]
	}
	if over := t.Len() + len(p) - t.limit; over > 0 {
		t.Next(over)
	}
	t.Buffer.Write(p)
	return n, nil
}
