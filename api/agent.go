package api

// Agent says of a sandbox which agent it was made for.
type Agent struct {
	Name     string   `json:"name,omitempty"`   // as its file is called; absent: it has none
	Bottle   string   `json:"bottle,omitempty"` // that it runs in; absent as Name is
	Digest   string   `json:"digest,omitempty"` // SHA-256 of its file
	Provider string   `json:"provider"`         // such as "claude"
	Program  []string `json:"program"`          // how that is called inside
	Dir      string   `json:"dir"`              // where it starts

	Base      string   `json:"base,omitempty"`      // the commit that it began with
	Prompt    string   `json:"prompt,omitempty"`    // the file inside that its prompt is in
	Command   []string `json:"command,omitempty"`   // what is run for it
	Authority string   `json:"authority,omitempty"` // SHA-256 of the certificate by which its gate answers, in DER
}

// SetUp is what is done in a sandbox for an agent before it works there: a part of POST
// /v1/sandboxes, of which nothing is left where a step fails, and the body of POST
// /v1/sandboxes/{id}/setup, which does it in one that is there, and starts it first where it
// is stopped. Both need a daemon and a guest of this version, and steps are said by SetUpStep.
type SetUp struct {
	Agent Agent `json:"agent"` // Base, Prompt, Command and Authority are the answer's
	// Definition is the provider's file, whose directories, files and commands are made and
	// run.
	Definition string            `json:"definition"`
	Ways       []string          `json:"ways,omitempty"`  // of the provider's, by which its models know the user
	Facts      map[string]string `json:"facts,omitempty"` // of the user's login, and no secret
	Bypass     bool              `json:"bypass,omitempty"`
	Resume     bool              `json:"resume,omitempty"` // it goes on with its last conversation
	Remote     bool              `json:"remote,omitempty"` // it can be led from elsewhere
	Args       []string          `json:"args,omitempty"`   // its own

	GitConfig string       `json:"git_config,omitempty"` // git's own form: what stands for remotes
	GitUser   GitUser      `json:"git_user,omitzero"`
	Prompt    string       `json:"prompt,omitempty"`
	Skills    []string     `json:"skills,omitempty"` // of those that the daemon keeps for the caller
	Work      *SetUpWork   `json:"work,omitempty"`   // the workspace is a tree of the caller's
	Copies    []SetUpCopy  `json:"copies,omitempty"`
	Files     []SetUpWrite `json:"files,omitempty"` // written into the home, at ~/PATH
	// Start has the agent started, too, as the command with the tag "main": who asked may leave
	// meanwhile, and what was begun goes on.
	Start *SetUpStart `json:"start,omitempty"`
}

// SetUpStart says with what an agent is started that nobody is joined to yet.
type SetUpStart struct {
	Terminal bool              `json:"terminal,omitempty"` // of Cols and Rows
	Cols     uint32            `json:"cols,omitempty"`
	Rows     uint32            `json:"rows,omitempty"`
	Env      map[string]string `json:"env,omitempty"` // besides the sandbox's, such as TERM
}

// GitUser is whom commits are by.
type GitUser struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
}

// SetUpWork makes git ready in a workspace.
type SetUpWork struct {
	// Git is the path of a tar archive on the daemon's host, with one directory in it, that
	// becomes the workspace's .git; absent: it has its own, or none.
	Git string `json:"git,omitempty"`
}

// SetUpCopy is a file of the daemon's host, read with the caller's rights, that is copied in.
type SetUpCopy struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// SetUpWrite is a file that is written.
type SetUpWrite struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Mode    string `json:"mode,omitempty"` // octal; 0644
}

// SetUpStep is one step, as it begins and as it has ended.
type SetUpStep struct {
	Do   string `json:"do"`   // "ca", "remotes", "git", "prompt", "skill", "workspace", "copy", "write", "dir", "pre_copy", "file", "verify", "start"
	What string `json:"what"` // in words
	// Done: it has ended, in so many milliseconds.
	Done   bool  `json:"done,omitempty"`
	Millis int64 `json:"ms,omitempty"`
	// Note is what else is to be known of it.
	Note string `json:"note,omitempty"`
	// Mended is a file's place at which something else was, which was moved aside.
	Mended string `json:"mended,omitempty"`
}
