package instance

import (
	"fmt"
	"maps"
	"os"
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// agentConfig is what the agent of sb is told, its image apart.
func agentConfig(sb *sandbox.Sandbox) control.Config {
	c := control.Config{
		ID: sb.ID, User: sb.Spec.User, Env: map[string]string{}, PIDs: sb.Spec.Limits.PIDs,
		AllowRoot: RootAllowed(sb.Spec, sb.Owner), PIDNamespace: true, DiskPaths: []string{"/", "/workspace"},
		Programs: true, Sudo: sb.Spec.Sudo,
	}
	if weak.On(weak.SudoGiven) {
		c.Sudo, c.AllowRoot = true, true
	}
	if weak.On(weak.ControlShared) {
		c.Hide = []string{GuestControl}
	}
	if l := sb.Link; l != nil {
		c.Network = &guest.Network{Nameservers: l.Nameservers, Trust: l.Trust, Gate: l.Hostname}
		maps.Copy(c.Env, l.Env)
	}
	maps.Copy(c.Env, sb.Spec.Env)
	switch {
	case sb.Spec.Cwd != "":
		c.Cwd = sb.Spec.Cwd
	case sb.Spec.Workspace.Source.Path != "" || sb.Spec.Workspace.Volume != "":
		c.Cwd = sandbox.WorkspacePath
	}
	if len(sb.Access) > 0 {
		lock := lockOf(sb.Access)
		c.Lock = &lock
	}
	if sb.Spec.ReadOnlyRoot && !weak.On(weak.RootWritable) {
		c.ReadOnlyRoot, c.Writable = true, []string{sandbox.WorkspacePath}
		for _, m := range sb.Spec.Mounts {
			c.Writable = append(c.Writable, m.Target)
		}
	}
	return c
}

// defaultEnv sets a variable that the caller did not name.
func defaultEnv(c *control.Config, name, value string) {
	if _, ok := c.Env[name]; !ok {
		c.Env[name] = value
	}
}

// useImage takes over what an image says of its commands. A user that it
// names stands for the sandbox's own, unless a template has had its say; root
// has to be asked for by the caller.
func useImage(c *control.Config, img image.Config, spec sandbox.Spec) {
	c.Furnish = true
	for _, e := range img.Env {
		if name, value, ok := strings.Cut(e, "="); ok {
			defaultEnv(c, name, value)
		}
	}
	if c.Cwd == "" && img.WorkingDir != "" {
		c.Cwd = path.Join("/", img.WorkingDir)
	}
	user, _, _ := strings.Cut(img.User, ":")
	if spec.User == sandbox.DefaultUser && spec.Template == nil && user != "" && user != "root" && strings.Trim(user, "0") != "" {
		c.User = user
	}
}

// RootAllowed reports whether commands may be root in the guest. Over a tree
// of the host's that it can write, guest root would be more than the tree's
// owner is; and of a tree that somebody else named, it would read what that
// one can't.
func RootAllowed(spec sandbox.Spec, owner string) bool {
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

// protectGit finds what git on the host would obey in a tree that the instance can
// write to.
func (d *Dir) protectGit() error {
	if d.Mode != modeRW {
		return nil
	}
	root, err := openAccepted(*d)
	if err != nil {
		return err
	}
	defer root.Close()
	d.Protect, err = workspace.ProtectedGitPaths(root)
	return err
}

func hostDir(h sandbox.HostDir, mode, target string) Dir {
	return Dir{Mode: mode, Source: h.Path, Dev: h.Dev, Ino: h.Ino, UID: h.UID, GID: h.GID, Target: target}
}
