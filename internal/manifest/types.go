package manifest

import (
	"github.com/carboy-sandbox/carboy/api"
)

// Bottle is what a file says of a wall, or what becomes of it and of those that it
// extends. Its fields are called as those of a create are.
type Bottle struct {
	Extends names `json:"extends,omitempty" jsonschema:"bottles that it starts from: one name, or a list of which later ones win"`

	Isolation string   `json:"isolation,omitempty" jsonschema:"the wall; gvisor without one"`
	Stronger  []string `json:"stronger,omitempty" jsonschema:"walls that will do as well"`
	Image     string   `json:"image,omitempty" jsonschema:"the image; host, this machine's programs, without one"`
	Template  string   `json:"template,omitempty" jsonschema:"a template to start from, in place of an image"`
	User      string   `json:"user,omitempty" jsonschema:"whom commands run as"`
	ReadOnly  *bool    `json:"read_only_root,omitempty" jsonschema:"nobody writes anywhere but in the workspace, the home and temporary directories"`

	Network string      `json:"network,omitempty" jsonschema:"off, policy: what the policy allows, or on: the public internet"`
	Policy  *api.Policy `json:"policy,omitempty" jsonschema:"what may be reached"`
	Secrets []string    `json:"secrets,omitempty" jsonschema:"names of secrets, whose values carboy secret keeps"`

	Env    map[string]string `json:"env,omitempty" jsonschema:"variables; nothing secret"`
	Caches []string          `json:"caches,omitempty" jsonschema:"tools whose caches are kept"`
	Limits limits            `json:"limits,omitzero" jsonschema:"bounds of the sandbox"`

	Remotes   map[string]Remote `json:"remotes,omitempty" jsonschema:"git repositories that the gate fetches from and pushes to, by name"`
	Supervise *bool             `json:"supervise,omitempty" jsonschema:"whether the agent may ask you for more"`
	GitUser   GitUser           `json:"git_user,omitzero" jsonschema:"whom commits are by"`
}

// limits are api.Limits, in which a size may have a unit.
type limits struct {
	CPUs   float64 `json:"cpus,omitempty" jsonschema:"processors"`
	Memory size    `json:"memory,omitempty" jsonschema:"bytes, or a size such as 4g"`
	PIDs   int64   `json:"pids,omitempty" jsonschema:"processes"`
	Disk   size    `json:"disk,omitempty" jsonschema:"bytes, or a size such as 20g"`
	Inodes int64   `json:"inodes,omitempty" jsonschema:"files"`
}

// size is a number of bytes.
type size int64

// names are one name or a list of them.
type names []string

// Remote is a git repository elsewhere, which the gate alone talks to.
type Remote struct {
	URL string `json:"url" jsonschema:"ssh://git@host/path, git@host:path or https://host/path"`
	Key Key    `json:"key,omitzero" jsonschema:"by what the gate is known there"`
	// KnownHostKey is the host's own, as ssh-keyscan prints it after the name. Without one
	// the gate refuses to forward.
	KnownHostKey string `json:"known_host_key,omitempty" jsonschema:"the host's own key: ssh-ed25519 AAAA...; without one the gate refuses to forward"`
	Push         Push   `json:"push,omitzero" jsonschema:"what may be pushed"`
}

// Push says what may be pushed to a remote. What it does not say is the daemon's default.
type Push struct {
	ReadOnly    bool     `json:"read_only,omitempty" jsonschema:"nothing may"`
	Protected   []string `json:"protected,omitempty" jsonschema:"refs that nothing changes: refs/heads/main, or refs/heads/release/** for all that is below"`
	Deletions   string   `json:"deletions,omitempty" jsonschema:"of refs; deny without it"`
	Forced      string   `json:"forced,omitempty" jsonschema:"updates by which refs lose commits; deny without it"`
	Secrets     string   `json:"secrets,omitempty" jsonschema:"what seems to be one; deny without it"`
	Held        string   `json:"held,omitempty" jsonschema:"files that hosts and forges run or obey; ask without it"`
	Binaries    string   `json:"binaries,omitempty" jsonschema:"files that are no text; allow without it"`
	Unscannable string   `json:"unscannable,omitempty" jsonschema:"what can't be looked into; ask without it"`
	MaxBlob     size     `json:"max_blob,omitempty" jsonschema:"of a file: bytes, or a size such as 50m"`
	MaxPush     size     `json:"max_push,omitempty" jsonschema:"of all that is new, unpacked: bytes, or a size such as 1g"`
	MaxCommits  int      `json:"max_commits,omitempty" jsonschema:"commits of one push"`
	MaxRefs     int      `json:"max_refs,omitempty" jsonschema:"refs of one push"`
}

// Key is where the key of a remote lies. The sandbox never has it.
type Key struct {
	Provider string `json:"provider,omitempty" jsonschema:"static: a file, agent: an SSH agent, or secret: one that carboy secret keeps"`
	Path     string `json:"path,omitempty" jsonschema:"the file, or the agent's socket: absolute, or below ~/; of an agent SSH_AUTH_SOCK without it"`
	Name     string `json:"name,omitempty" jsonschema:"of the secret"`
	Username string `json:"username,omitempty" jsonschema:"by HTTPS; x-access-token without one"`
}

// GitUser is whom commits are by. It is claimed, and nobody vouches for it.
type GitUser struct {
	Name  string `json:"name,omitempty" jsonschema:"user.name"`
	Email string `json:"email,omitempty" jsonschema:"user.email"`
}

// Agent is who works in a bottle.
type Agent struct {
	Bottle   string      `json:"bottle" jsonschema:"the bottle that it runs in"`
	Provider string      `json:"provider,omitempty" jsonschema:"the agent's program, as carboy agent ls has them; claude without one"`
	Prompt   string      `json:"prompt,omitempty" jsonschema:"what it is told; in Markdown, the text below the front matter"`
	Skills   []string    `json:"skills,omitempty" jsonschema:"names of skills that it is given"`
	GitUser  GitUser     `json:"git_user,omitzero" jsonschema:"whom its commits are by, before what the bottle says"`
	Files    []File      `json:"files,omitempty" jsonschema:"files that are written into its home"`
	Policy   *api.Policy `json:"policy,omitempty" jsonschema:"what it may reach of what its bottle allows"`
}

// File is a file that is written into the home of an agent.
type File struct {
	Path    string `json:"path" jsonschema:"below the home: ~/notes.md"`
	Content string `json:"content" jsonschema:"what it has"`
	Mode    string `json:"mode,omitempty" jsonschema:"octal, 0644 without one"`
}

// both is the form in which one JSON object has everything.
type both struct {
	Bottles map[string]Bottle `json:"bottles,omitempty" jsonschema:"bottles, by name"`
	Agents  map[string]Agent  `json:"agents,omitempty" jsonschema:"agents, by name"`
}

// Place is where something was said.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}
