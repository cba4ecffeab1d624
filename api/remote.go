package api

// Remote is a git repository elsewhere, which a sandbox's git fetches from and pushes to by the
// git gate, at http://gate.carboy.internal/git/NAME.git inside. The host of its URL is closed in
// the sandbox's own network for SSH, and for pushes by HTTPS.
type Remote struct {
	Name string `json:"name"` // letters, digits, ".", "_" and "-", at most 64
	URL  string `json:"url"`  // ssh://git@host/path, git@host:path or https://host/path
	// KnownHostKey has the keys by which the host of an SSH URL is known, each on a line: a type and a
	// key. Without one nothing is forwarded.
	KnownHostKey string     `json:"known_host_key,omitempty"`
	Key          RemoteKey  `json:"key,omitzero"`
	Push         RemotePush `json:"push,omitzero"`
}

// RemoteKey says where that is by which the gate is known there. It is read each time that it is
// needed, and is itself a part of no record.
type RemoteKey struct {
	// Provider is "static": a file, "agent": the socket of an SSH agent, both of the caller's on the
	// daemon's host and over its socket only; "secret": one of the caller's secrets; absent: nothing, by
	// HTTPS.
	Provider string `json:"provider,omitempty"`
	Path     string `json:"path,omitempty"`     // of static and agent: absolute
	Name     string `json:"name,omitempty"`     // of secret
	Username string `json:"username,omitempty"` // by HTTPS; "x-access-token" where there is none
}

// RemotePush says what may be pushed. Each of its actions is "allow", "deny" or "ask": a person
// is, by an approval of the kind "push". Sizes are in bytes.
type RemotePush struct {
	ReadOnly bool `json:"read_only,omitempty"` // nothing may
	// Protected are patterns of refs that nothing changes: whole names, "refs/heads/v*", or
	// "refs/heads/release/**" for all that is below.
	Protected   []string `json:"protected,omitempty"`
	Deletions   string   `json:"deletions,omitempty"`   // of refs; default "deny"
	Forced      string   `json:"forced,omitempty"`      // updates by which refs lose commits; "deny"
	Secrets     string   `json:"secrets,omitempty"`     // "deny"
	Held        string   `json:"held,omitempty"`        // files that hosts and forges run or obey; "ask"
	Binaries    string   `json:"binaries,omitempty"`    // "allow"
	Unscannable string   `json:"unscannable,omitempty"` // what can't be looked into; "ask"
	MaxBlob     int64    `json:"max_blob,omitempty"`    // of a file; 50 MiB
	MaxPush     int64    `json:"max_push,omitempty"`    // of all that is new, unpacked; 1 GiB
	MaxCommits  int      `json:"max_commits,omitempty"` // 10,000
	MaxRefs     int      `json:"max_refs,omitempty"`    // of one push; 32
}
