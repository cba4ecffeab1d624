package langbot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// admittedID is the one session that a workspace has which is admitted by a
// grant.
const admittedID = "global"

// policy bounds every grant, and shapes every session that is admitted by one.
// Its names are the original's. RequiredBackend is "nsjail" there; here it
// stands for the wall that sessions are behind, whichever the operator
// configured, as nsjail's isolation is what each of them has at least.
type policy struct {
	Required        bool    `json:"required"`
	LogicalID       string  `json:"logical_session_id"`
	RequiredBackend string  `json:"required_backend"`
	MaxSessions     int     `json:"max_sessions"`
	MaxProcesses    int     `json:"max_managed_processes"`
	MaxGrantSec     int     `json:"max_grant_ttl_sec"`
	MaxTimeoutSec   int     `json:"max_timeout_sec"`
	CPUs            float64 `json:"cpus"`
	MemoryMB        int     `json:"memory_mb"`
	PIDsLimit       int     `json:"pids_limit"`
	ReadOnlyRootFS  bool    `json:"read_only_rootfs"`
	QuotaMB         int     `json:"workspace_quota_mb"`
	ReadinessSec    int     `json:"readiness_cache_sec"`
}

func defaultPolicy() policy {
	return policy{
		LogicalID: admittedID, RequiredBackend: "nsjail", MaxSessions: 1, MaxGrantSec: 300, MaxTimeoutSec: 120,
		CPUs: 1, MemoryMB: 512, PIDsLimit: 128, ReadOnlyRootFS: true, ReadinessSec: 15,
	}
}

// parsePolicy reads a policy strictly; null is one that requires nothing.
func parsePolicy(raw json.RawMessage) (policy, error) {
	p := defaultPolicy()
	if string(bytes.TrimSpace(raw)) == "null" {
		return p, nil
	}
	if err := strictly(raw, &p); err != nil {
		return p, err
	}
	for _, c := range []struct {
		ok   bool
		what string
	}{
		{p.LogicalID == admittedID, `logical_session_id must be "global"`},
		{p.RequiredBackend == "nsjail", `required_backend must be "nsjail", which stands for the configured wall`},
		{p.MaxSessions == 0 || p.MaxSessions == 1, "max_sessions must be between 0 and 1"},
		{p.MaxProcesses == 0, "max_managed_processes must be 0"},
		{p.MaxGrantSec > 0, "max_grant_ttl_sec must be greater than 0"},
		{p.MaxTimeoutSec > 0, "max_timeout_sec must be greater than 0"},
		{p.CPUs > 0, "cpus must be greater than 0"},
		{p.MemoryMB >= sessions.MinMemoryMB, "memory_mb must be at least 32"},
		{p.PIDsLimit > 0, "pids_limit must be greater than 0"},
		{p.QuotaMB >= 0, "workspace_quota_mb must be 0 or more"},
		{p.ReadinessSec >= 0, "readiness_cache_sec must be 0 or more"},
	} {
		if !c.ok {
			return p, fmt.Errorf("%s", c.what)
		}
	}
	return p, nil
}

// parseGrant reads a grant strictly, and when it ends.
func parseGrant(raw json.RawMessage) (g langbot.Grant, expires time.Time, err error) {
	if err := strictly(raw, &g, "instance_uuid", "workspace_uuid", "execution_generation", "entitlement_revision", "expires_at", "max_sessions", "max_managed_processes"); err != nil {
		return g, expires, fault.Invalid("grant: %v", err)
	}
	g.InstanceUUID, g.WorkspaceUUID = strings.TrimSpace(g.InstanceUUID), strings.TrimSpace(g.WorkspaceUUID)
	expires, err = time.Parse(time.RFC3339, g.ExpiresAt)
	switch {
	case err != nil:
		return g, expires, fault.Invalid("grant: expires_at %.64q is no time with a timezone, as 2026-01-02T15:04:05Z is", g.ExpiresAt)
	case g.InstanceUUID == "" || g.WorkspaceUUID == "" || len(g.WorkspaceUUID) > 256:
		return g, expires, fault.Invalid("grant: instance_uuid and workspace_uuid must not be empty, nor over 256 bytes")
	case g.ExecutionGeneration < 1 || g.EntitlementRevision < 1:
		return g, expires, fault.Invalid("grant: execution_generation and entitlement_revision must be at least 1")
	case g.MaxSessions < 0 || g.MaxProcesses < 0:
		return g, expires, fault.Invalid("grant: max_sessions and max_managed_processes must be 0 or more")
	}
	return g, expires.UTC(), nil
}

func parseRevocation(raw json.RawMessage) (r langbot.Revocation, err error) {
	if err := strictly(raw, &r, "instance_uuid", "workspace_uuid", "entitlement_revision"); err != nil {
		return r, fault.Invalid("revocation: %v", err)
	}
	r.InstanceUUID, r.WorkspaceUUID = strings.TrimSpace(r.InstanceUUID), strings.TrimSpace(r.WorkspaceUUID)
	if r.InstanceUUID == "" || r.WorkspaceUUID == "" || len(r.WorkspaceUUID) > 256 || r.EntitlementRevision < 1 {
		return r, fault.Invalid("revocation: instance_uuid and workspace_uuid must not be empty, and entitlement_revision must be at least 1")
	}
	return r, nil
}

// strictly decodes an object with no field that to does not have, in exactly
// its name, none that is null, and all that are required.
func strictly(raw json.RawMessage, to any, required ...string) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return fmt.Errorf("it is no object")
	}
	known, err := json.Marshal(to)
	if err != nil {
		return err
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(known, &names); err != nil {
		return err
	}
	for name, value := range given {
		if _, ok := names[name]; !ok {
			return fmt.Errorf("field %.64q is not known", name)
		}
		if string(value) == "null" {
			return fmt.Errorf("field %s is null", name)
		}
	}
	for _, name := range required {
		if _, ok := given[name]; !ok {
			return fmt.Errorf("field %s is missing", name)
		}
	}
	if err := strict.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("a field has the wrong type")
	}
	return nil
}
