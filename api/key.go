package api

import "time"

// KeyRequest is the body of POST /v1/keys, which makes a key. It may grant
// nothing that its maker has not got. Team is for administrators; anybody
// else's keys are of the own team.
type KeyRequest struct {
	Name           string   `json:"name"`
	Team           string   `json:"team,omitempty"`
	Scopes         []string `json:"scopes,omitempty"` // none: read, manage and exec, as far as the maker has them
	Paths          []string `json:"paths,omitempty"`  // directories of the host that it may name
	HostImage      bool     `json:"host_image,omitempty"`
	PrivateNetwork bool     `json:"private_network,omitempty"`
	Isolation      string   `json:"isolation,omitempty"` // the weakest wall of its sandboxes; none: its team's
}

// Key is a key that was made at run time. GET /v1/keys lists those of the
// caller's team, and everybody's for an administrator; DELETE /v1/keys/{id}
// deletes one.
type Key struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	Team           string    `json:"team"`
	TeamID         string    `json:"team_id"` // by which E2B's API knows the team
	Mask           string    `json:"mask"`    // "e2b_12...cdef"
	Scopes         []string  `json:"scopes"`
	Paths          []string  `json:"paths,omitempty"`
	HostImage      bool      `json:"host_image,omitempty"`
	PrivateNetwork bool      `json:"private_network,omitempty"`
	Isolation      string    `json:"isolation,omitempty"`
	CreatedAt      time.Time `json:"created_at"`
	LastUsedAt     time.Time `json:"last_used_at,omitzero"` // to the minute
}

// NewKey answers POST /v1/keys. It alone has the key itself.
type NewKey struct {
	Key
	Secret string `json:"secret"`
}
