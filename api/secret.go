package api

import "time"

// SecretValue is a secret. It goes to the daemon and never comes back; it
// writes itself as nothing but JSON.
type SecretValue string

// String hides it, so that no log or error ever has it.
func (SecretValue) String() string { return "(hidden)" }

// GoString hides it.
func (SecretValue) GoString() string { return "(hidden)" }

// SandboxSecret gives a sandbox the use of a secret. What runs in it holds a
// placeholder; the value is put in outside, where a rule of its policy says.
type SandboxSecret struct {
	Name string `json:"name"`
	// Value is for this sandbox alone, and goes with it; absent: the caller's
	// own secret of that name.
	Value *SecretValue `json:"value,omitempty"`
}

// SecretRequest is the body of POST /v1/secrets, which keeps a secret under
// its name, or a new one in its place, and of POST /v1/secrets/{name}/rotate,
// which has no Name. One of Value, File and Command is needed; a rotate without
// any takes the value from where it comes from anew.
type SecretRequest struct {
	Name    string       `json:"name,omitempty"` // a letter or "_", then up to 127 of those and digits
	Value   *SecretValue `json:"value,omitempty"`
	File    string       `json:"file,omitempty"`    // absolute path on the daemon's host; over its socket only
	Command []string     `json:"command,omitempty"` // the program's absolute path and its arguments, not a shell's; over its socket only
	// TTLMillis is how long what Command printed is used; 0: it runs for each
	// use.
	TTLMillis int64 `json:"ttl_ms,omitempty"`
	// Key says that it is a private key, as PEM: it has many lines, and is for git's remotes alone. Of a
	// rotate it is what the secret was.
	Key bool `json:"key,omitempty"`
}

// Secret is what may be known of a secret: never its value. GET /v1/secrets
// lists the caller's, by name. DELETE /v1/secrets/{name} forgets one, which is a
// conflict while sandboxes use it, unless ?force=1.
type Secret struct {
	Name       string    `json:"name"`
	Source     string    `json:"source,omitempty"` // "value", "file" or "command"
	File       string    `json:"file,omitempty"`
	Command    []string  `json:"command,omitempty"`
	TTLMillis  int64     `json:"ttl_ms,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"`
	RotatedAt  time.Time `json:"rotated_at,omitzero"` // when it last got a new value
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	Key        bool      `json:"key,omitempty"`     // a private key, for git's remotes
	Damaged    bool      `json:"damaged,omitempty"` // it can't be read: only the name is known
	Notes      []string  `json:"notes,omitempty"`   // of an add or a rotate: what its owner should know
}
