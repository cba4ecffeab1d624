// Package profile turns what a caller asked of a session into what it gets.
//
// It reads a request as leniently as LangBot's Box does ("999" and 999.0 are
// 999) and says what it did not know; it fills in, locks and clamps by a
// profile, and reports each change; it holds the rules by which a request fits
// a session that is there, by which output is cut, and by which a directory of
// the host may be named. It has the classes of errors that all wires share.
//
// It refuses what could not be honoured: values out of their range, places that
// are not absolute, text that is none. All but Roots is pure: it reads and
// writes nothing.
package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// newSpec is a Spec of which nothing was said.
func newSpec() sessions.Spec {
	return sessions.Spec{
		Workdir: tools.WorkspacePath, TimeoutSec: sessions.DefaultTimeoutSec, Network: sessions.NetworkOff,
		Env: map[string]string{}, Image: sessions.DefaultImage,
		HostPathMode: sessions.MountWritable, MountPath: tools.WorkspacePath, ExtraMounts: []sessions.Mount{},
		CPUs: sessions.DefaultCPUs, MemoryMB: sessions.DefaultMemoryMB, PIDsLimit: sessions.DefaultPIDs, ReadOnlyRootFS: true,
	}
}

// specOrder are the fields of a Spec in the order in which they are read, so
// that of several faults the same one is always the first.
var specOrder = []string{
	"cmd", "workdir", "timeout_sec", "network", "session_id", "env", "image", "host_path",
	"host_path_mode", "mount_path", "extra_mounts", "skill_name", "persistent", "cpus", "memory_mb",
	"pids_limit", "read_only_rootfs", "workspace_quota_mb",
	"on_timeout", "quota", "workspace_inodes", "isolation",
}

// specFields read one field each.
var specFields = map[string]func(*sessions.Spec, any) error{
	"cmd":     func(s *sessions.Spec, v any) error { return text(&s.Cmd, v) },
	"workdir": func(s *sessions.Spec, v any) error { return text(&s.Workdir, v) },
	"network": func(s *sessions.Spec, v any) error {
		return oneOf(&s.Network, v, sessions.NetworkOff, sessions.NetworkOn)
	},
	"session_id": func(s *sessions.Spec, v any) error { return text(&s.SessionID, v) },
	"env":        func(s *sessions.Spec, v any) error { return environment(&s.Env, v) },
	"image":      func(s *sessions.Spec, v any) (err error) { s.Image, err = toText(v); return err },
	"host_path":  func(s *sessions.Spec, v any) error { return hostPath(s, v) },
	"host_path_mode": func(s *sessions.Spec, v any) error {
		return oneOf(&s.HostPathMode, v, sessions.MountNone, sessions.MountReadOnly, sessions.MountWritable)
	},
	"mount_path":         func(s *sessions.Spec, v any) error { return text(&s.MountPath, v) },
	"extra_mounts":       func(s *sessions.Spec, v any) error { return mounts(&s.ExtraMounts, v) },
	"skill_name":         func(s *sessions.Spec, v any) error { return optional(&s.SkillName, v) },
	"persistent":         func(s *sessions.Spec, v any) (err error) { s.Persistent, err = toBool(v); return err },
	"cpus":               func(s *sessions.Spec, v any) (err error) { s.CPUs, err = toFloat(v); return err },
	"timeout_sec":        func(s *sessions.Spec, v any) (err error) { s.TimeoutSec, err = toInt(v); return err },
	"memory_mb":          func(s *sessions.Spec, v any) (err error) { s.MemoryMB, err = toInt(v); return err },
	"pids_limit":         func(s *sessions.Spec, v any) (err error) { s.PIDsLimit, err = toInt(v); return err },
	"read_only_rootfs":   func(s *sessions.Spec, v any) (err error) { s.ReadOnlyRootFS, err = toBool(v); return err },
	"workspace_quota_mb": func(s *sessions.Spec, v any) (err error) { s.WorkspaceQuotaMB, err = toInt(v); return err },

	// Ours. Null is as good as absent for those, too.
	"on_timeout": func(s *sessions.Spec, v any) error {
		return choice(&s.OnTimeout, v, sessions.OnTimeoutKeep, sessions.OnTimeoutReset)
	},
	"quota": func(s *sessions.Spec, v any) error {
		return choice(&s.Quota, v, sessions.QuotaHard, sessions.QuotaSoft)
	},
	"workspace_inodes": func(s *sessions.Spec, v any) error {
		if v == nil {
			return nil
		}
		n, err := toInt(v)
		s.WorkspaceInodes = int64(n)
		return err
	},
	"isolation": func(s *sessions.Spec, v any) error { return optional(&s.Isolation, v) },
}

// ParseSpec reads a request from JSON. ignored are the fields that it does not
// know, sorted: the original overlooks them, and so does this. What is not said
// has the original's default; the first fault is an error of kind Invalid.
func ParseSpec(b []byte) (spec sessions.Spec, ignored []string, err error) {
	m, err := object(b)
	if err != nil {
		return sessions.Spec{}, nil, err
	}
	return Parse(m)
}

// Parse is ParseSpec for a request that was read already, or that was never
// JSON: it takes Go's own numbers, lists and maps of text too.
func Parse(m map[string]any) (spec sessions.Spec, ignored []string, err error) {
	spec = newSpec()
	m = withWorkdir(m)
	for _, f := range specOrder {
		v, given := m[f]
		if !given {
			continue
		}
		if err := specFields[f](&spec, v); err != nil {
			return sessions.Spec{}, nil, fault.Invalid("%s: %v", f, err)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(m)) {
		if _, known := specFields[f]; !known {
			ignored = append(ignored, f)
		}
	}
	if err := Validate(spec); err != nil {
		return sessions.Spec{}, nil, err
	}
	return spec, ignored, nil
}

// withWorkdir has a request that names no working directory begin in its
// workspace.
func withWorkdir(m map[string]any) map[string]any {
	if w, given := m["workdir"]; given && w != nil && w != "" {
		return m
	}
	mount, err := toText(m["mount_path"])
	if err != nil || request.Trim(mount) == "" {
		return m
	}
	m = maps.Clone(m)
	m["workdir"] = mount
	return m
}

// object reads JSON that is one object, its numbers as they were written.
func object(b []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil || m == nil {
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fault.Invalid("not JSON: %v", err)
		}
		return nil, fault.Invalid("an object is wanted")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.Invalid("not JSON: something follows the object")
	}
	return m, nil
}

func text(to *string, v any) error {
	s, err := toText(v)
	*to = request.Trim(s)
	return err
}

// optional is text that may be null.
func optional(to *string, v any) error {
	if v == nil {
		return nil
	}
	return text(to, v)
}

func oneOf(to *string, v any, values ...string) error {
	s, err := toText(v)
	if err != nil || !slices.Contains(values, s) {
		return wanted(strings.Join(values[:len(values)-1], ", ")+" or "+values[len(values)-1], v)
	}
	*to = s
	return nil
}

// choice is oneOf for a value that may be missing.
func choice(to *string, v any, values ...string) error {
	if v == nil || v == "" {
		return nil
	}
	return oneOf(to, v, values...)
}

func hostPath(s *sessions.Spec, v any) error {
	if v == nil {
		return nil
	}
	if err := text(&s.HostPath, v); err != nil {
		return err
	}
	if !request.AbsoluteOnHost(s.HostPath) {
		return fmt.Errorf("host_path must be an absolute host path, not %q", fault.Cut(s.HostPath))
	}
	return nil
}

// environment takes numbers and truth values as text. No error has a value.
func environment(to *map[string]string, v any) error {
	if m, ok := v.(map[string]string); ok {
		v = widen(m)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return wanted("an object", v)
	}
	env := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s, err := toScalar(m[k])
		if err != nil {
			return fmt.Errorf("%s: text is wanted", fault.Show(k))
		}
		env[k] = s
	}
	*to = env
	return nil
}

func widen[V any](m map[string]V) map[string]any {
	wide := make(map[string]any, len(m))
	for k, v := range m {
		wide[k] = v
	}
	return wide
}

func mounts(to *[]sessions.Mount, v any) error {
	var list []any
	switch v := v.(type) {
	case []sessions.Mount:
		for _, m := range v {
			list = append(list, map[string]any{"host_path": m.HostPath, "mount_path": m.MountPath, "mode": m.Mode})
		}
	case []map[string]any:
		for _, m := range v {
			list = append(list, m)
		}
	case []any:
		list = v
	default:
		return wanted("a list", v)
	}
	*to = make([]sessions.Mount, 0, len(list))
	for i, entry := range list {
		m, err := mount(entry)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		*to = append(*to, m)
	}
	return nil
}

func mount(v any) (sessions.Mount, error) {
	m := sessions.Mount{Mode: sessions.MountWritable}
	entry, ok := v.(map[string]any)
	if !ok {
		return m, wanted("an object", v)
	}
	for _, f := range []struct {
		name string
		to   *string
	}{{"host_path", &m.HostPath}, {"mount_path", &m.MountPath}} {
		v, given := entry[f.name]
		if !given {
			return m, fmt.Errorf("%s is missing", f.name)
		}
		if err := text(f.to, v); err != nil {
			return m, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if mode, given := entry["mode"]; given {
		if err := oneOf(&m.Mode, mode, sessions.MountNone, sessions.MountReadOnly, sessions.MountWritable); err != nil {
			return m, fmt.Errorf("mode: %w", err)
		}
	}
	return m, nil
}
