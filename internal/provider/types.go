package provider

import "github.com/carboy-sandbox/carboy/internal/policy"

// Provider is what is known of one agent, as its file says it.
type Provider struct {
	Name    string `toml:"-" json:"name"`           // of its file
	From    string `toml:"-" json:"from,omitempty"` // the path of a user's file; "": built in
	Title   string `toml:"title" json:"title"`      // as people call it
	Program string `toml:"program" json:"program"`  // its name; "": what is typed after --
	About   string `toml:"about" json:"about"`      // one line
	Config  Config `toml:"config" json:"config"`    // where it keeps its own files
	Install Places `toml:"install" json:"install"`  // where its installers put it
	Package Pack   `toml:"package" json:"package"`  // what it is built from where it isn't here
	Run     Run    `toml:"run" json:"run"`          // how it is started
	Access  Ways   `toml:"access" json:"access"`    // how its models know the user
	Plain   Reach  `toml:"reach" json:"reach"`      // what it needs besides

	// Env are variables of the sandbox, and Dirs to Verify what is done in it before
	// the program runs, in this order. Their texts are templates: see Values.
	Env     map[string]string `toml:"env" json:"env,omitempty"`
	Dirs    []Dir             `toml:"dir" json:"dirs,omitempty"`
	PreCopy []Command         `toml:"pre_copy" json:"pre_copy,omitempty"`
	Files   []File            `toml:"file" json:"files,omitempty"`
	Verify  []Command         `toml:"verify" json:"verify,omitempty"`

	text []byte // of a user's file
}

// Config is the directory of the program's own files.
type Config struct {
	Variable string `toml:"variable" json:"variable,omitempty"` // that names another one
	Dir      string `toml:"dir" json:"dir,omitempty"`           // below the home
	Skills   string `toml:"skills" json:"skills,omitempty"`     // where it looks for skills
	// Keep are directories that outlive the sandbox: what was said, and the program's state.
	Keep []string `toml:"keep" json:"keep,omitempty"`
}

// Places are where installers put a program, after the directories of PATH. A path may
// begin with ~ or ${VARIABLE:-~/default} and hold *, of which the highest version counts.
type Places struct {
	Paths []string `toml:"paths" json:"paths,omitempty"`
	// Trees are directories that hold the program and its versions, and nothing else: they
	// are shown as they are.
	Trees []string `toml:"trees" json:"trees,omitempty"`
	NPM   string   `toml:"npm" json:"npm,omitempty"`   // its package, for the places of npm, bun, pnpm, yarn, volta, nvm, fnm, …
	PyPI  string   `toml:"pypi" json:"pypi,omitempty"` // its package, for those of pipx and uv
}

// Pack is the package that a template is built from.
type Pack struct {
	Version string   `toml:"version" json:"version,omitempty"` // pinned
	Image   string   `toml:"image" json:"image,omitempty"`     // to start from where this machine lacks Needs
	Needs   string   `toml:"needs" json:"needs,omitempty"`     // the program that installs it
	Steps   []string `toml:"steps" json:"steps,omitempty"`     // as root; {{.Version}} and {{.Dir}} are known
	Path    string   `toml:"path" json:"path,omitempty"`       // of the program, below {{.Dir}}
	Presets []string `toml:"presets" json:"presets,omitempty"` // what the steps reach
}

// Prompt modes: how a prompt that is a file reaches the program.
const (
	AppendFile = "append_file"      // it is added to the program's own
	ReadFile   = "read_prompt_file" // the program is told to read it
)

// Run is how the program is started. All arguments are templates.
type Run struct {
	PromptMode string   `toml:"prompt_mode" json:"prompt_mode,omitempty"`
	Prompt     []string `toml:"prompt" json:"prompt,omitempty"`      // with {{.PromptFile}}
	Bypass     []string `toml:"bypass" json:"bypass_args,omitempty"` // it asks before nothing: the wall is what holds
	Resume     []string `toml:"resume" json:"resume_args,omitempty"` // it goes on with its last conversation
	Remote     []string `toml:"remote_control" json:"remote_control_args,omitempty"`
	Headless   []string `toml:"headless" json:"headless,omitempty"` // arguments with which it needs no terminal
}

// Ways are the ways in which a model's host knows the user.
type Ways struct {
	All  bool   `toml:"all" json:"all,omitempty"`   // every one for which there is a secret, not the first alone
	None bool   `toml:"none" json:"none,omitempty"` // it may run without any
	Ways []Way  `toml:"way" json:"ways,omitempty"`
	Hint string `toml:"hint" json:"hint,omitempty"` // where there is no secret for any
}

// Way is one of them.
type Way struct {
	Name    string           `toml:"name" json:"name"`
	Reaches string           `toml:"reaches" json:"reaches"`         // how the first line calls where it leads
	Preset  string           `toml:"preset" json:"preset,omitempty"` // whose rules are taken, with Secrets in the place of its own
	Rule    []map[string]any `toml:"rule" json:"rules,omitempty"`    // or rules of its own, as in a policy
	Secrets []Secret         `toml:"secret" json:"secrets"`
	// Refuses are statuses by which its host may say that a secret is not good, besides
	// 401 and 403.
	Refuses []int `toml:"refuses" json:"refuses,omitempty"`

	Facts []Fact `toml:"fact" json:"facts,omitempty"`

	rules []policy.Rule // of Rule, read
	agent string        // whose it is
}

// Fact is something of a login that is no secret, such as the number of an account: files
// inside may have it.
type Fact struct {
	Name    string `toml:"name" json:"name"`
	File    string `toml:"file" json:"file"`                 // a JSON file of the program's
	Pointer string `toml:"pointer" json:"pointer"`           // where it is in there
	Claim   string `toml:"claim" json:"claim,omitempty"`     // and where in the claims of the token that is there
	Default string `toml:"default" json:"default,omitempty"` // where it is nowhere
}

// Secret is a credential and where it goes, and where it is found outside.
type Secret struct {
	Name     string `toml:"name" json:"name"`
	Header   string `toml:"header" json:"header"`
	Scheme   string `toml:"scheme" json:"scheme,omitempty"`
	Optional bool   `toml:"optional" json:"optional,omitempty"`

	Variables []string `toml:"variables" json:"variables,omitempty"` // besides its name
	File      string   `toml:"file" json:"file,omitempty"`           // a JSON file of the program's
	Pointer   string   `toml:"pointer" json:"pointer,omitempty"`     // where it is in there
	Expires   string   `toml:"expires" json:"expires,omitempty"`     // where its end is, in milliseconds since 1970; "jwt": in the token
	Renew     string   `toml:"renew" json:"renew,omitempty"`         // what to do once it is over
}

// Reach is what a program needs besides its models.
type Reach struct {
	Presets []string         `toml:"presets" json:"presets,omitempty"`
	Rule    []map[string]any `toml:"rule" json:"rules,omitempty"`
	// Quiet are hosts that it asks for without need: a refusal is not worth a word.
	Quiet []string `toml:"quiet" json:"quiet,omitempty"`

	rules []policy.Rule
}

// Dir is a directory that is made.
type Dir struct {
	Path  string `toml:"path" json:"path"`
	Mode  string `toml:"mode" json:"mode,omitempty"` // octal; 0755
	Error string `toml:"error" json:"error"`         // what is said where it fails
}

// File is a file that is written.
type File struct {
	Path    string `toml:"path" json:"path"`
	Mode    string `toml:"mode" json:"mode,omitempty"` // octal; 0644
	Content string `toml:"content" json:"content"`
	Merge   bool   `toml:"merge" json:"merge,omitempty"` // JSON: laid over what is there
	Way     string `toml:"way" json:"way,omitempty"`     // with that way alone
	Error   string `toml:"error" json:"error"`
}

// Command is a command that must succeed.
type Command struct {
	Argv  []string `toml:"argv" json:"argv"`
	Way   string   `toml:"way" json:"way,omitempty"`
	Error string   `toml:"error" json:"error"`
}
