package api

import (
	"strings"
	"time"
)

// Snapshot is what a sandbox wrote, kept for others to start from: POST
// /v1/sandboxes/{id}/snapshots makes one, GET /v1/snapshots lists the caller's,
// GET and DELETE /v1/snapshots/{id} show and remove one.
type Snapshot struct {
	ID          string    `json:"id"` // "sn_…"
	Owner       string    `json:"owner"`
	Image       string    `json:"image"`                  // what it lies over, without the digest
	ImageDigest string    `json:"image_digest,omitempty"` // absent for "host"
	Parent      string    `json:"parent,omitempty"`       // the snapshot below it
	Source      string    `json:"source"`                 // the ID of the sandbox that it was made of
	Size        int64     `json:"size"`                   // bytes on disk, those below not counted
	Shared      bool      `json:"shared,omitempty"`       // everyone's sandboxes may start from it
	Notes       []string  `json:"notes,omitempty"`        // what was left out
	CreatedAt   time.Time `json:"created_at"`
}

// ofBuilds begins the owner of what template builds made.
const ofBuilds = "template:"

// OfBuild reports whether a template build made it: it goes with the template, or
// with what is kept for later builds, and is not removed by itself.
func (s Snapshot) OfBuild() bool { return strings.HasPrefix(s.Owner, ofBuilds) }
