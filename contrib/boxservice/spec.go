package boxservice

import (
	"cmp"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
)

// specBody is what goes out for a Spec: with the defaults of what has no zero
// that means anything, as a runtime would refuse an image without a name, or a
// command with no time. What ReadOnlyRootFS is can't be told from what it is
// not: false stays false, and NewSpec has true.
func specBody(s Spec) Spec {
	def := NewSpec(s.SessionID, s.Cmd)
	s.MountPath = cmp.Or(s.MountPath, def.MountPath)
	s.Workdir = cmp.Or(s.Workdir, s.MountPath)
	s.TimeoutSec = cmp.Or(s.TimeoutSec, def.TimeoutSec)
	s.Network = cmp.Or(s.Network, def.Network)
	s.Image = cmp.Or(s.Image, def.Image)
	s.HostPathMode = cmp.Or(s.HostPathMode, def.HostPathMode)
	s.CPUs = cmp.Or(s.CPUs, def.CPUs)
	s.MemoryMB = cmp.Or(s.MemoryMB, def.MemoryMB)
	s.PIDsLimit = cmp.Or(s.PIDsLimit, def.PIDsLimit)
	if s.Env == nil {
		s.Env = def.Env
	}
	if s.ExtraMounts == nil {
		s.ExtraMounts = def.ExtraMounts
	}
	return s
}

// NewSpec returns a Spec with its defaults: no network, a workspace of the
// session's own, 30 seconds, 1 CPU, 512 MiB, 128 processes, and a root that is
// read-only. What is made without it and left empty is as here, but for
// ReadOnlyRootFS.
func NewSpec(session, cmd string) Spec {
	return Spec{
		SessionID: session, Cmd: cmd,
		Workdir: tools.WorkspacePath, MountPath: tools.WorkspacePath,
		TimeoutSec: sessions.DefaultTimeoutSec, Network: sessions.NetworkOff, Image: sessions.DefaultImage,
		HostPathMode: sessions.MountWritable, CPUs: sessions.DefaultCPUs, MemoryMB: sessions.DefaultMemoryMB,
		PIDsLimit: sessions.DefaultPIDs, ReadOnlyRootFS: true,
		Env: map[string]string{}, ExtraMounts: []Mount{},
	}
}

// processBody is a ProcessSpec with its defaults.
func processBody(s ProcessSpec) ProcessSpec {
	s.ProcessID = cmp.Or(s.ProcessID, sessions.DefaultProcess)
	s.Cwd = cmp.Or(s.Cwd, tools.WorkspacePath)
	if s.Args == nil {
		s.Args = []string{}
	}
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	return s
}
