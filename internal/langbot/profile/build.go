package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// Defaults are what a service's configuration gives a request that does not
// say, before its profile is asked.
type Defaults struct {
	HostPath         string // the default workspace; "": none
	WorkspaceQuotaMB *int   // nil: the profile's
	Image            string // "": the profile's
}

// Build makes the Spec of a payload: the configuration's defaults first, then
// the profile's, whose locked fields hold whatever was asked for, and whose
// maximum clamps a timeout. Each value that was asked for and is not what holds
// is among the adjustments; so is each field that is not known. The payload is
// left as it is. An error is of kind Invalid and names the first fault.
func Build(payload map[string]any, p sessions.Profile, d Defaults) (sessions.Spec, []sessions.Adjustment, error) {
	m := maps.Clone(payload)
	if m == nil {
		m = map[string]any{}
	}
	if _, given := m["env"]; !given {
		m["env"] = map[string]any{}
	}
	if d.HostPath != "" && empty(m["host_path"]) {
		m["host_path"] = d.HostPath
	}
	if d.WorkspaceQuotaMB != nil && empty(m["workspace_quota_mb"]) {
		m["workspace_quota_mb"] = *d.WorkspaceQuotaMB
	}
	if _, given := m["image"]; d.Image != "" && !given {
		m["image"] = d.Image
	}
	adjusted := apply(m, p)
	if v, a := clamp(m["timeout_sec"], p); a != nil {
		m["timeout_sec"] = v
		adjusted = append(adjusted, *a)
	}
	spec, ignored, err := Parse(m)
	if err != nil {
		return sessions.Spec{}, nil, err
	}
	for _, f := range ignored {
		adjusted = append(adjusted, Ignored(f, m[f], "no such field: ignored"))
	}
	return spec, adjusted, nil
}

// empty reports whether v says nothing of a field that null and "" leave open.
func empty(v any) bool { return v == nil || v == "" }

// apply fills in what m does not have, and overwrites what is locked. Null is a
// value: it is not filled in.
func apply(m map[string]any, p sessions.Profile) (adjusted []sessions.Adjustment) {
	values := valuesOf(p)
	for _, f := range fields {
		asked, given := m[f]
		locked := slices.Contains(p.Locked, f)
		if given && !locked {
			continue
		}
		m[f] = values[f]
		if given && !same(f, asked, values[f]) {
			adjusted = append(adjusted, sessions.Adjustment{
				Field: f, Asked: asked, Got: values[f], Reason: "locked by profile " + p.Name,
			})
		}
	}
	return adjusted
}

// same reports whether two values of a field come to the same.
func same(f string, a, b any) bool {
	var x, y sessions.Spec
	if specFields[f](&x, a) != nil || specFields[f](&y, b) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// clamp returns what a timeout comes to under a profile: v itself, or the
// profile's maximum with an Adjustment that says so. What is no whole number,
// however written, is left for the check of the field to refuse.
func clamp(v any, p sessions.Profile) (any, *sessions.Adjustment) {
	n, err := toInt(v)
	if err != nil || n <= p.MaxTimeoutSec {
		return v, nil
	}
	return p.MaxTimeoutSec, &sessions.Adjustment{
		Field: "timeout_sec", Asked: v, Got: p.MaxTimeoutSec,
		Reason: fmt.Sprintf("at most %d by profile %s", p.MaxTimeoutSec, p.Name),
	}
}

// Ignored is the Adjustment of a field that nothing came of. A value that is
// not short and plain is left out of it.
func Ignored(f string, asked any, reason string) sessions.Adjustment {
	switch v := asked.(type) {
	case string:
		asked = fault.Cut(v)
	case bool, int, float64, json.Number:
	default:
		asked = nil
	}
	return sessions.Adjustment{Field: fault.Cut(f), Asked: asked, Reason: reason}
}
