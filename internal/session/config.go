package session

import (
	"cmp"
	"math"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

const (
	defaultTTL      = 300 * time.Second
	defaultKeepIdle = 7 * 24 * time.Hour
	defaultSilence  = time.Minute
	maxSilence      = 24 * 60 * 60 // seconds that may be configured
	maxRPCFile      = 100 << 20    // bytes that may be configured
)

// limits are the whole numbers of Config.Limits: by name, with their defaults and
// the most that may be configured.
func limits(l *sessions.Limits) []limit {
	return []limit{
		{"max_sessions", &l.MaxSessions, 64, 5000},
		{"max_managed_processes", &l.MaxProcesses, 64, 1024},
		{"max_completed_processes", &l.MaxCompleted, 256, 10_000},
		{"completed_process_retention_sec", &l.CompletedSec, 300, 24 * 60 * 60},
		{"max_workspace_entries", &l.MaxEntries, quota.DefaultEntries, quota.MaxEntries},
		{"max_admission_records", &l.MaxAdmissions, 100_000, 250_000},
		{"max_sleeping", &l.MaxSleeping, 256, 100_000},
	}
}

type limit struct {
	name      string
	n         *int
	def, most int
}

// Config is what the operator set. The zero value works: sessions have
// workspaces of their own and no directory of the host.
type Config struct {
	// Image is what sessions get that name none, "": the
	// machine's own.
	Image string `json:"image,omitempty"`
	// Isolation is the wall of sessions that name none; "": gvisor.
	Isolation string `json:"isolation,omitempty"`
	// AllowedIsolation are walls that a session may name although they are weaker
	// than Isolation. A stronger one it may always name.
	AllowedIsolation []string `json:"allowed_isolation,omitempty"`
	// HostRoot is a directory of the host below which workspaces lie.
	HostRoot string `json:"host_root,omitempty"`
	// DefaultWorkspace is that of sessions that name none; where it is not
	// absolute, it is below HostRoot. "": that called "default" in HostRoot;
	// where there is none, theirs are private.
	DefaultWorkspace string `json:"default_workspace,omitempty"`
	// AllowedMountRoots are the directories below which those may lie that a
	// session names; where there are none: HostRoot.
	AllowedMountRoots []string `json:"allowed_mount_roots,omitempty"`
	// WorkspaceQuotaMB holds for sessions that name none; 0: none.
	WorkspaceQuotaMB int `json:"workspace_quota_mb,omitempty"`
	// Quota is request.QuotaHard where no session may have less.
	Quota string `json:"quota,omitempty"`
	// SessionTTLSec is for how long an idle session is left as it is; nil: 300;
	// 0 and less: for good.
	SessionTTLSec *int `json:"session_ttl_sec,omitempty"`
	// KeepIdleSec is for how long one sleeps after that before it is removed,
	// where its workspace has something in it; nil: 7 days; 0 and less: it is
	// removed at once.
	KeepIdleSec *int `json:"keep_idle_sec,omitempty"`
	// SilenceSec is how long after a command's time its sandbox may take to say that it
	// has ended, before it is stopped; 0: 60.
	SilenceSec int             `json:"silence_sec,omitempty"`
	Limits     sessions.Limits `json:"limits,omitzero"` // what is 0 has its default
}

// TTL returns for how long an idle session is left as it is; 0: for good.
func (c Config) TTL() time.Duration {
	if c.SessionTTLSec == nil {
		return defaultTTL
	}
	return time.Duration(max(*c.SessionTTLSec, 0)) * time.Second
}

// KeepIdle returns for how long an idle session sleeps; 0: not at all.
func (c Config) KeepIdle() time.Duration {
	if c.KeepIdleSec == nil {
		return defaultKeepIdle
	}
	return time.Duration(max(*c.KeepIdleSec, 0)) * time.Second
}

// Silence returns for how long after a command's time nothing need be heard of it.
func (c Config) Silence() time.Duration {
	if c.SilenceSec == 0 {
		return defaultSilence
	}
	return time.Duration(c.SilenceSec) * time.Second
}

// WithDefaults returns c with its image, its wall and its limits filled in.
func (c Config) WithDefaults() Config {
	l := &c.Limits
	for _, of := range limits(l) {
		*of.n = cmp.Or(*of.n, of.def)
	}
	l.MaxRPCFileBytes = cmp.Or(l.MaxRPCFileBytes, 20<<20)
	l.SleepingKeepsSec = int(c.KeepIdle() / time.Second)
	c.Image = cmp.Or(c.Image, sandbox.DefaultImage)
	c.Isolation = cmp.Or(c.Isolation, sandbox.DefaultIsolation)
	return c
}

// Validate says which setting can't be, by its name.
func (c Config) Validate() error {
	bad := func(setting, format string, args ...any) error {
		return sandbox.Errorf(sandbox.Invalid, "box."+setting+": "+format, args...)
	}
	if c.HostRoot != "" && !filepath.IsAbs(c.HostRoot) {
		return bad("host_root", "%.200q is not an absolute path", c.HostRoot)
	}
	if c.DefaultWorkspace != "" && !filepath.IsAbs(c.DefaultWorkspace) && c.HostRoot == "" {
		return bad("default_workspace", "%.200q is not an absolute path, and there is no box.host_root", c.DefaultWorkspace)
	}
	if c.DefaultWorkspace != "" && c.HostRoot == "" && len(c.AllowedMountRoots) == 0 {
		return bad("default_workspace", "%.200q can't be mounted: there is neither a box.host_root nor a box.allowed_mount_roots", c.DefaultWorkspace)
	}
	for _, p := range c.AllowedMountRoots {
		if !filepath.IsAbs(p) {
			return bad("allowed_mount_roots", "%.200q is not an absolute path", p)
		}
	}
	if c.WorkspaceQuotaMB < 0 || c.WorkspaceQuotaMB > request.MaxQuota>>20 {
		return bad("workspace_quota_mb", "%d is out of bounds: 0 to %d", c.WorkspaceQuotaMB, request.MaxQuota>>20)
	}
	for _, d := range []struct {
		name string
		sec  *int
	}{{"session_ttl_sec", c.SessionTTLSec}, {"keep_idle_sec", c.KeepIdleSec}} {
		if d.sec != nil && *d.sec > math.MaxInt32 {
			return bad(d.name, "%d is out of bounds: at most %d", *d.sec, math.MaxInt32)
		}
	}
	if c.SilenceSec < 0 || c.SilenceSec > maxSilence {
		return bad("silence_sec", "%d is out of bounds: at most %d, and 0 is the default", c.SilenceSec, maxSilence)
	}
	if c.Quota != request.QuotaAny && c.Quota != request.QuotaHard && c.Quota != request.QuotaSoft {
		return bad("quota", "%.40q is no choice: hard, soft, or none", c.Quota)
	}
	if c.Isolation != "" && !sandbox.ValidWall(c.Isolation) {
		return bad("isolation", "%.40q: there is no such wall", c.Isolation)
	}
	for _, w := range c.AllowedIsolation {
		if !sandbox.ValidWall(w) {
			return bad("allowed_isolation", "%.40q: there is no such wall", w)
		}
	}
	l := c.Limits
	if l.SleepingKeepsSec != 0 {
		return sandbox.Errorf(sandbox.Invalid, "box.limits.sleeping_keeps_sec: it is told, not set").WithHint("set box.keep_idle_sec")
	}
	for _, of := range limits(&l) {
		if *of.n < 0 || *of.n > of.most {
			return bad("limits."+of.name, "%d is out of bounds: at most %d, and 0 is the default", *of.n, of.most)
		}
	}
	if l.MaxRPCFileBytes < 0 || l.MaxRPCFileBytes > maxRPCFile {
		return bad("limits.max_rpc_file_bytes", "%d is out of bounds: at most %d, and 0 is the default", l.MaxRPCFileBytes, maxRPCFile)
	}
	return nil
}

// roots is what of c is about directories of the host.
func (c Config) roots(private []string) hostroot.Config {
	return hostroot.Config{
		HostRoot: c.HostRoot, DefaultWorkspace: c.DefaultWorkspace, AllowedMountRoots: c.AllowedMountRoots, Private: private, Make: home.Make,
	}
}
