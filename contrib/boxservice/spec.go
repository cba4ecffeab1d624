package boxservice

import (
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
)

// specBody is what goes out for a Spec: with the defaults of what has no zero
// that means anything, as a runtime would refuse an image without a name, or a
// command with no time. What ReadOnlyRootFS is can't be told from what it is
// not: false stays false, and NewSpec has true.
func specBody(s Spec) Spec {
	def := NewSpec(s.SessionID, s.Cmd)
	orElse(&s.MountPath, def.MountPath)
	orElse(&s.Workdir, s.MountPath)
	orElse(&s.TimeoutSec, def.TimeoutSec)
	orElse(&s.Network, def.Network)
	orElse(&s.Image, def.Image)
	orElse(&s.HostPathMode, def.HostPathMode)
	orElse(&s.CPUs, def.CPUs)
	orElse(&s.MemoryMB, def.MemoryMB)
	orElse(&s.PIDsLimit, def.PIDsLimit)
	if s.Env == nil {
		s.Env = def.Env
	}
	if s.ExtraMounts == nil {
		s.ExtraMounts = def.ExtraMounts
	}
	return s
}

func orElse[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
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
	orElse(&s.ProcessID, sessions.DefaultProcess)
	orElse(&s.Cwd, tools.WorkspacePath)
	if s.Args == nil {
		s.Args = []string{}
	}
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	return s
}
