package profile

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// The names of the built-in profiles.
const (
	Default         = "default"
	offlineReadonly = "offline_readonly"
	networkBasic    = "network_basic"
	networkExtended = "network_extended"
)

// fields are what a profile has a value of, and may lock, in the order in
// which they are applied.
var fields = []string{
	"image", "network", "timeout_sec", "host_path_mode", "cpus", "memory_mb",
	"pids_limit", "read_only_rootfs", "workspace_quota_mb",
}

// plain is a profile of which nothing was said.
func plain(name string) sessions.Profile {
	return sessions.Profile{
		Name: name, Image: sessions.DefaultImage, Network: sessions.NetworkOff,
		TimeoutSec: sessions.DefaultTimeoutSec, MaxTimeoutSec: 120,
		HostPathMode: sessions.MountWritable,
		CPUs:         sessions.DefaultCPUs, MemoryMB: sessions.DefaultMemoryMB, PIDsLimit: sessions.DefaultPIDs,
		ReadOnlyRootFS: true,
	}
}

// Builtin returns the built-in profiles by name. The map is the caller's.
func Builtin() map[string]sessions.Profile {
	offline := plain(offlineReadonly)
	offline.HostPathMode, offline.MaxTimeoutSec = sessions.MountReadOnly, 60
	offline.CPUs, offline.MemoryMB, offline.PIDsLimit = 0.5, 256, 64
	offline.Locked = []string{"host_path_mode", "network", "read_only_rootfs"}

	basic := plain(networkBasic)
	basic.Network = sessions.NetworkOn

	extended := plain(networkExtended)
	extended.Network, extended.MaxTimeoutSec = sessions.NetworkOn, 300
	extended.CPUs, extended.MemoryMB, extended.PIDsLimit = 2, 1024, 256
	extended.ReadOnlyRootFS = false

	return map[string]sessions.Profile{
		Default: plain(Default), offlineReadonly: offline, networkBasic: basic, networkExtended: extended,
	}
}

// Custom are the profiles of a configuration, by name. It reads itself from
// JSON: an object of objects with the fields of sessions.Profile but for its name.
// What one does not say is as in the profile "default". An unknown field, a
// value that a Spec could not have and a name that is taken are errors.
type Custom map[string]sessions.Profile

// UnmarshalJSON reads and checks the profiles.
func (c *Custom) UnmarshalJSON(b []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return fault.Invalid("profiles: an object of profiles by their names is wanted")
	}
	all := Custom{}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		p, err := parseProfile(name, raw[name])
		if err != nil {
			return err
		}
		all[name] = p
	}
	*c = all
	return nil
}

func parseProfile(name string, b []byte) (sessions.Profile, error) {
	p := plain(name)
	if err := strict.Unmarshal(b, &p); err != nil {
		return p, fault.Invalid("profile %s: %v", fault.Show(name), err)
	}
	if p.Name != name {
		return p, fault.Invalid("profile %s: it can't be called %s too", fault.Show(name), fault.Show(p.Name)).WithHint("leave the name out")
	}
	slices.Sort(p.Locked)
	return p, checkProfile(p)
}

// Check reports the first profile that can't be used.
func (c Custom) Check() error {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name].Name != name {
			return fault.Invalid("profile %s: it is called %s", fault.Show(name), fault.Show(c[name].Name))
		}
		if err := checkProfile(c[name]); err != nil {
			return err
		}
	}
	return nil
}

// checkProfile reports what is wrong with a profile that is not built in.
func checkProfile(p sessions.Profile) error {
	if !goodName(p.Name) {
		return fault.Invalid("profile %s: not a name", fault.Show(p.Name)).WithHint("1 to 64 letters, digits, - and _")
	}
	if _, taken := Builtin()[p.Name]; taken {
		return fault.Invalid("profile %s: that one is built in", p.Name).WithHint("choose another name")
	}
	spec := newSpec()
	spec.SessionID = "profile"
	values := valuesOf(p)
	for _, f := range fields {
		if err := specFields[f](&spec, values[f]); err != nil {
			return fault.Invalid("profile %s: %v", p.Name, err)
		}
	}
	if err := Validate(spec); err != nil {
		return fault.Invalid("profile %s: %v", p.Name, err)
	}
	if p.MaxTimeoutSec < p.TimeoutSec {
		return fault.Invalid("profile %s: max_timeout_sec %d is less than timeout_sec %d", p.Name, p.MaxTimeoutSec, p.TimeoutSec)
	}
	for i, f := range p.Locked {
		if !slices.Contains(fields, f) {
			return fault.Invalid("profile %s: %s can't be locked", p.Name, fault.Show(f)).WithHint("%s", strings.Join(fields, ", "))
		}
		if slices.Contains(p.Locked[:i], f) {
			return fault.Invalid("profile %s: %s is locked twice", p.Name, f)
		}
	}
	return nil
}

// Find returns the profile of a name, "" being "default". One that is not there
// is an error with the names that are.
func Find(name string, custom Custom) (sessions.Profile, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		name = Default
	}
	all := Builtin()
	for n, p := range custom {
		if _, taken := all[n]; !taken {
			all[n] = p
		}
	}
	if p, ok := all[name]; ok {
		p.Locked = slices.Clone(p.Locked)
		return p, nil
	}
	return sessions.Profile{}, fault.Invalid("unknown box profile '%s', available profiles: %s",
		fault.Cut(name), strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}

// valuesOf returns what a profile gives the fields of a Spec.
func valuesOf(p sessions.Profile) map[string]any {
	return map[string]any{
		"image": p.Image, "network": p.Network, "timeout_sec": p.TimeoutSec,
		"host_path_mode": p.HostPathMode, "cpus": p.CPUs, "memory_mb": p.MemoryMB,
		"pids_limit": p.PIDsLimit, "read_only_rootfs": p.ReadOnlyRootFS,
		"workspace_quota_mb": p.WorkspaceQuotaMB,
	}
}

func goodName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
}
