package sandbox

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Bounds of a Spec.
const (
	MinCPUs   = 0.1
	MinMemory = 16 << 20
	minPIDs   = 1       // which runs what a shell can without another process
	maxPIDs   = 1 << 22 // the kernel's own
	MinDisk   = 4 << 20
	MaxDisk   = 8 << 40
	MinInodes = 64
	maxInodes = 1 << 32

	MinTTL = time.Second
	MaxTTL = 365 * 24 * time.Hour

	MaxEnv      = 1000    // variables
	maxEnvVar   = 1 << 17 // bytes of one, with its key, "=" and NUL: the kernel's own bound
	maxEnvTotal = 1 << 18 // bytes of all

	maxLabels      = 64
	maxLabelKey    = 128     // bytes
	maxLabelValue  = 4 << 10 // bytes
	maxLabelsTotal = 32 << 10

	maxEnvKey = 256 // bytes
)

// The names of the limits, in Limits.Explicit and in Enforcement.Promise.
const (
	LimitCPUs   = "cpus"
	LimitMemory = "memory"
	LimitPIDs   = "pids"
	LimitDisk   = "disk"
	LimitInodes = "inodes"
)

var limitNames = []string{LimitCPUs, LimitMemory, LimitPIDs, LimitDisk, LimitInodes}

// Offer is what a machine and its walls can give. A Spec is checked against one.
type Offer struct {
	Walls   []string // sorted
	Gate    bool     // whether a network can be gated
	Images  bool     // whether pinned images can be had, besides DefaultImage
	Start   bool     // whether a Startup can be run
	Volumes bool     // whether volumes can be mounted
	CPUs    float64  // of the machine; 0: unknown, and not checked
	Memory  int64    // of the machine, in bytes; 0: unknown, and not checked
}

// Normalize returns s with a default for everything that was left open, and
// cleaned paths. A limit that differs from its default counts as set by the
// caller; a caller that sets one to just its default names it in Explicit. The name
// stays empty where it is. What can't work is left for Validate to refuse.
func (s Spec) Normalize(o Offer) Spec {
	s = s.Clone()
	setDefault(&s.Isolation, DefaultIsolation)
	s.Stronger = orderWalls(s.Stronger)
	setDefault(&s.Image, DefaultImage)
	setDefault(&s.User, DefaultUser)
	s.normalizeNetwork()
	setDefault(&s.OnExpiry, OnExpiryStop)
	if s.Workspace.Mode == "" {
		s.Workspace.Mode = WorkspacePrivate
		switch {
		case s.Workspace.Source != (HostDir{}):
			s.Workspace.Mode = WorkspaceCOW
		case s.Workspace.Volume != "":
			s.Workspace.Mode = WorkspaceVolume
		}
	}
	s.Limits = s.Limits.normalize(o)
	for i := range s.Mounts {
		s.Mounts[i].Target = cleanTarget(s.Mounts[i].Target)
	}
	return s
}

func setDefault[T ~string](p *T, d T) {
	if *p == "" {
		*p = d
	}
}

// normalize fills in the defaults, which never exceed the machine.
func (l Limits) normalize(o Offer) Limits {
	cpus, memory := float64(DefaultCPUs), int64(DefaultMemory)
	if o.CPUs > 0 {
		cpus = min(cpus, o.CPUs)
	}
	if o.Memory > 0 {
		memory = min(memory, o.Memory)
	}
	mark := func(name string) {
		if l.Explicit == nil {
			l.Explicit = make(map[string]bool)
		}
		l.Explicit[name] = true
	}
	fill(&l.CPUs, cpus, LimitCPUs, l.Explicit[LimitCPUs], mark)
	fill(&l.Memory, memory, LimitMemory, l.Explicit[LimitMemory], mark)
	fill(&l.PIDs, DefaultPIDs, LimitPIDs, l.Explicit[LimitPIDs], mark)
	fill(&l.Disk, DefaultDisk, LimitDisk, l.Explicit[LimitDisk], mark)
	// A small disk has no room for the tables of a million files.
	fill(&l.Inodes, min(defaultInodes, max(l.Disk/bytesPerInode, MinInodes)), LimitInodes, l.Explicit[LimitInodes], mark)
	return l
}

func fill[T int64 | float64](p *T, def T, name string, explicit bool, mark func(string)) {
	switch {
	case explicit: // an explicit 0 is for Validate to refuse
	case *p == 0:
		*p = def
	case *p != def:
		mark(name)
	}
}

// Validate reports the first thing in a normalised s that can't be promised
// on o, as an Error that says what would work.
func (s Spec) Validate(o Offer) error {
	for _, check := range []func() *Error{
		func() *Error { return checkName(s.Name) },
		func() *Error { return s.checkWalls(o) },
		func() *Error { return s.checkImage(o) },
		func() *Error { return s.checkStartup(o) },
		s.checkSnapshot,
		func() *Error { return checkOnExpiry(s.OnExpiry) },
		s.checkStart,
		s.checkRemotes,
		s.checkSpawn,
		func() *Error { return s.checkNetwork(o) },
		s.Traffic.check,
		func() *Error { return CheckPublish(s.Publish) },
		s.checkTTL,
		func() *Error { return s.Workspace.check(o) },
		func() *Error { return checkMounts(s.Mounts, o) },
		func() *Error { return s.Limits.check(o) },
		func() *Error { return checkEnv(s.Env) },
		func() *Error { return checkLabels(s.Labels) },
		s.Project.check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// maxKeys bounds what is said of a project's file, and each of its keys, in bytes.
const maxKeys = 64

func (p *Project) check() *Error {
	if p == nil {
		return nil
	}
	bad := !goodPath(p.File) || len(p.Digest) != 64 || strings.Trim(p.Digest, "0123456789abcdef") != "" || len(p.Keys) > maxKeys
	for _, k := range p.Keys {
		bad = bad || len(k) > maxKeys || !printable(k)
	}
	if bad {
		return Errorf(Invalid, "project: not a file, its digest and some of its keys").WithHint("leave it out")
	}
	return nil
}

func checkName(name string) *Error {
	if name == "" || ValidName(name) {
		return nil
	}
	return Errorf(Invalid, "name %s: not a sandbox's name", refText(name)).
		WithHint("1 to %d of a-z, 0-9 and -, starting with a letter: web-1", MaxName)
}

func (s Spec) checkSnapshot() *Error {
	if s.Snapshot == "" || ValidSnapshotID(s.Snapshot) {
		return nil
	}
	return Errorf(Invalid, "snapshot %s: not a snapshot's ID", refText(s.Snapshot)).WithHint("carboy snapshot ls")
}

func checkOnExpiry(on OnExpiry) *Error {
	if on != OnExpiryStop && on != OnExpiryPause && on != OnExpiryRemove {
		return Errorf(Invalid, "on_expiry %s: no such choice", refText(string(on))).
			WithHint("stop, pause, or remove")
	}
	return nil
}

func (s Spec) checkTTL() *Error {
	if s.TTL == 0 {
		return nil
	}
	return checkTTL(s.TTL)
}

func checkTTL(d time.Duration) *Error {
	if d >= MinTTL && d <= MaxTTL {
		return nil
	}
	return Errorf(Invalid, "ttl %v: out of bounds", d).
		WithHint("from %v to %v, or none", MinTTL, MaxTTL)
}

// Check reports why no machine could give a sandbox these limits, of which zero is what nobody has
// said; nil: one may.
func (l Limits) Check() *Error {
	orElse := func(to *int64, n int64) {
		if *to == 0 {
			*to = n
		}
	}
	if l.CPUs == 0 {
		l.CPUs = DefaultCPUs
	}
	orElse(&l.Memory, DefaultMemory)
	orElse(&l.PIDs, DefaultPIDs)
	orElse(&l.Disk, DefaultDisk)
	orElse(&l.Inodes, MinInodes)
	return l.check(Offer{})
}

func (l Limits) check(o Offer) *Error {
	for name := range l.Explicit {
		if !slices.Contains(limitNames, name) {
			return Errorf(Invalid, "limit %s: there is no such limit", refText(name)).
				WithHint("available: %s", list(limitNames))
		}
	}
	if math.IsNaN(l.CPUs) || l.CPUs < MinCPUs {
		return Errorf(Invalid, "cpus %g: too few", l.CPUs).WithHint("%s", atLeast("%g", MinCPUs, o.CPUs))
	}
	if o.CPUs > 0 && l.CPUs > o.CPUs || math.IsInf(l.CPUs, 1) {
		return Errorf(Unsupported, "cpus %g: more than this machine has", l.CPUs).
			WithHint("%s", atLeast("%g", MinCPUs, o.CPUs))
	}
	if l.Memory < MinMemory {
		return Errorf(Invalid, "memory %s: too little", SizeText(l.Memory)).
			WithHint("at least %s", SizeText(MinMemory))
	}
	if o.Memory > 0 && l.Memory > o.Memory {
		return Errorf(Unsupported, "memory %s: more than this machine has", SizeText(l.Memory)).
			WithHint("at most %s", SizeText(o.Memory&^(1<<20-1)))
	}
	if l.Disk < MinDisk || l.Disk > MaxDisk {
		return Errorf(Invalid, "disk %s: out of bounds", SizeText(l.Disk)).
			WithHint("from %s to %s", SizeText(MinDisk), SizeText(MaxDisk))
	}
	if err := checkCount(LimitPIDs, l.PIDs, minPIDs, maxPIDs); err != nil {
		return err
	}
	return checkCount(LimitInodes, l.Inodes, MinInodes, maxInodes)
}

func checkCount(name string, n, lo, hi int64) *Error {
	if n >= lo && n <= hi {
		return nil
	}
	return Errorf(Invalid, "%s %d: out of bounds", name, n).WithHint("from %d to %d", lo, hi)
}

func atLeast(verb string, lo, hi float64) string {
	if hi > 0 {
		return fmt.Sprintf("from "+verb+" to "+verb, lo, hi)
	}
	return fmt.Sprintf("at least "+verb, lo)
}

func checkEnv(env map[string]string) *Error {
	if len(env) > MaxEnv {
		return Errorf(Invalid, "env: %d variables are too many", len(env)).WithHint("at most %d", MaxEnv)
	}
	total := 0
	// In order, so that the same spec always gets the same error. A value may
	// be a secret: errors name the key alone.
	for _, k := range slices.Sorted(maps.Keys(env)) {
		v := env[k]
		if k == "" || len(k) > maxEnvKey || strings.ContainsAny(k, "=\x00") || !printable(k) {
			return Errorf(Invalid, "env %s: not a variable's name", refText(k)).
				WithHint("1 to %d printable characters without =", maxEnvKey)
		}
		if strings.ContainsRune(v, 0) {
			return Errorf(Invalid, "env %s: its value has a NUL byte", envText(k)).
				WithHint("no variable can hold one: put it into a file")
		}
		size := len(k) + len(v) + 2
		if size > maxEnvVar {
			return Errorf(Invalid, "env %s: %d bytes are too many", envText(k), size).
				WithHint("at most %d: put it into a file", maxEnvVar)
		}
		total += size
	}
	if total > maxEnvTotal {
		return Errorf(Invalid, "env: %d bytes in all are too many", total).
			WithHint("at most %d: put some of it into a file", maxEnvTotal)
	}
	return nil
}

// envText returns a variable's name, which is known to be printable.
func envText(key string) string { return cut(key, MaxName) }

func checkLabels(labels map[string]string) *Error {
	if len(labels) > maxLabels {
		return Errorf(Invalid, "labels: %d are too many", len(labels)).WithHint("at most %d", maxLabels)
	}
	total := 0
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		v := labels[k]
		if k == "" || len(k) > maxLabelKey || strings.ContainsRune(k, '=') || !printable(k) {
			return Errorf(Invalid, "label %s: not a label's name", refText(k)).
				WithHint("1 to %d printable bytes without =", maxLabelKey)
		}
		if len(v) > maxLabelValue || strings.ContainsRune(v, 0) || !utf8.ValidString(v) {
			return Errorf(Invalid, "label %s: not a label's value", refText(k)).
				WithHint("at most %d bytes of UTF-8 without NUL", maxLabelValue)
		}
		total += len(k) + len(v)
	}
	if total > maxLabelsTotal {
		return Errorf(Invalid, "labels: %d bytes in all are too many", total).
			WithHint("at most %d", maxLabelsTotal)
	}
	return nil
}

// ReservedLabels begins the labels that Carboy itself gives.
const ReservedLabels = "carboy."

// LabelPod marks the sandbox of a pod, with the token of its start.
const LabelPod = ReservedLabels + "pod"

// CheckCallersLabels refuses the labels of a caller that are Carboy's to give:
// by them it knows its own.
func CheckCallersLabels(labels map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(k, ReservedLabels) && !weak.On(weak.SessionMarkForged) {
			return Errorf(Invalid, "label %s: names that begin with %s are Carboy's own", refText(k), ReservedLabels).
				WithHint("give it another name")
		}
	}
	return nil
}

// printable reports whether s is UTF-8 without control or invisible
// characters. A space is printable.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// SizeText writes n bytes as people give sizes: "2g", "512m", else plain bytes.
func SizeText(n int64) string {
	for _, u := range []struct {
		size   int64
		suffix string
	}{{1 << 40, "t"}, {1 << 30, "g"}, {1 << 20, "m"}, {1 << 10, "k"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.suffix)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
