package workspace

// HoldRule is a kind of path that Apply leaves alone until the user names it,
// because something on the host executes it or takes orders from it.
type HoldRule struct {
	Pattern string // one name, or two joined by a slash, anywhere in a path; * as in a shell
	Reason  string
}

// The reasons, each short enough for a column.
const (
	reasonGit       = "git runs or obeys it on the host"
	reasonVCS       = "a version control system runs or obeys it on the host"
	reasonHooks     = "git hooks run it on the host"
	reasonEditor    = "an editor runs or obeys it when the directory is opened"
	reasonCI        = "CI runs it with its own secrets"
	reasonShell     = "a shell or version manager loads it on entering the directory"
	reasonEnv       = "tools load it as environment"
	reasonContainer = "an editor builds and enters a container from it"
	reasonAgent     = "an AI agent on the host takes orders from it"
	reasonPackage   = "a package manager or build tool takes registries, credentials or commands from it"
	reasonDebugger  = "a debugger runs it on start"
)

// holdRules is the table. Names are compared without regard to case and to
// what file systems ignore in names.
var holdRules = []HoldRule{
	{".git", reasonGit},
	{".gitmodules", reasonGit},
	{".gitconfig", reasonGit},
	{".lfsconfig", reasonGit},

	{".hg", reasonVCS},
	{".hgsub", reasonVCS},
	{".svn", reasonVCS},
	{".jj", reasonVCS},
	{".sl", reasonVCS},
	{".bzr", reasonVCS},
	{"_darcs", reasonVCS},
	{".repo", reasonVCS},

	{".husky", reasonHooks},
	{".githooks", reasonHooks},
	{".pre-commit-config.yaml", reasonHooks},
	{".pre-commit-config.yml", reasonHooks},
	{"lefthook.y*ml", reasonHooks},
	{".lefthook.y*ml", reasonHooks},
	{"lefthook-local.y*ml", reasonHooks},
	{".lefthook-local.y*ml", reasonHooks},
	{".lefthook", reasonHooks},
	{".overcommit.yml", reasonHooks},
	{".lintstagedrc*", reasonHooks},

	{".vscode", reasonEditor},
	{".vscode-server", reasonEditor},
	{".idea", reasonEditor},
	{".fleet", reasonEditor},
	{".zed", reasonEditor},
	{".nova", reasonEditor},
	{".vs", reasonEditor},
	{"*.code-workspace", reasonEditor},
	{"*.sublime-project", reasonEditor},
	{"*.iml", reasonEditor},
	{".vim", reasonEditor},
	{".vimrc", reasonEditor},
	{"_vimrc", reasonEditor},
	{".gvimrc", reasonEditor},
	{".exrc", reasonEditor},
	{"_exrc", reasonEditor},
	{".nvim", reasonEditor},
	{".nvimrc", reasonEditor},
	{".nvim.lua", reasonEditor},
	{".lazy.lua", reasonEditor},
	{".dir-locals.el", reasonEditor},
	{".dir-locals-2.el", reasonEditor},
	{".projectile", reasonEditor},
	{".helix", reasonEditor},

	{".github/copilot-instructions.md", reasonAgent},
	{".github/instructions", reasonAgent},
	{".github/prompts", reasonAgent},

	{".github", reasonCI},
	{".gitlab", reasonCI},
	{".gitlab-ci.y*ml", reasonCI},
	{".gitea", reasonCI},
	{".forgejo", reasonCI},
	{".circleci", reasonCI},
	{"jenkinsfile*", reasonCI},
	{".travis.y*ml", reasonCI},
	{"azure-pipelines*.y*ml", reasonCI},
	{".azure-pipelines", reasonCI},
	{".woodpecker*", reasonCI},
	{".drone.y*ml", reasonCI},
	{".drone.star", reasonCI},
	{".buildkite", reasonCI},
	{"bitbucket-pipelines.yml", reasonCI},
	{".cirrus.y*ml", reasonCI},
	{".cirrus.star", reasonCI},
	{"appveyor.yml", reasonCI},
	{".appveyor.yml", reasonCI},
	{".builds", reasonCI},
	{".build.yml", reasonCI},
	{".semaphore", reasonCI},
	{".teamcity", reasonCI},
	{".tekton", reasonCI},
	{"cloudbuild.y*ml", reasonCI},
	{"buildspec.y*ml", reasonCI},

	{".envrc", reasonShell},
	{".tool-versions", reasonShell},
	{"mise.toml", reasonShell},
	{"mise.*.toml", reasonShell},
	{".mise.toml", reasonShell},
	{".mise.*.toml", reasonShell},
	{".mise", reasonShell},
	{"mise/config.toml", reasonShell},
	{".rtx.toml", reasonShell},
	{".autoenv", reasonShell},
	{".autoenv.zsh", reasonShell},

	{".env", reasonEnv},
	{".env.*", reasonEnv},
	{".flaskenv", reasonEnv},

	{".devcontainer", reasonContainer},
	{".devcontainer.json", reasonContainer},
	{".gitpod.yml", reasonContainer},

	{".claude", reasonAgent},
	{".claude.json", reasonAgent},
	{"claude.md", reasonAgent},
	{"claude.local.md", reasonAgent},
	{"agents.md", reasonAgent},
	{"agents.override.md", reasonAgent},
	{"agent.md", reasonAgent},
	{".agents", reasonAgent},
	{".cursor", reasonAgent},
	{".cursorrules", reasonAgent},
	{".mcp.json", reasonAgent},
	{"mcp.json", reasonAgent},
	{".codex", reasonAgent},
	{".gemini", reasonAgent},
	{"gemini.md", reasonAgent},
	{".aider*", reasonAgent},
	{".windsurf", reasonAgent},
	{".windsurfrules", reasonAgent},
	{".clinerules", reasonAgent},
	{".roo", reasonAgent},
	{".roomodes", reasonAgent},
	{".roorules*", reasonAgent},
	{".kiro", reasonAgent},
	{".junie", reasonAgent},
	{".goosehints", reasonAgent},
	{".continue", reasonAgent},
	{".continuerules", reasonAgent},
	{".opencode", reasonAgent},
	{"opencode.json*", reasonAgent},
	{".amazonq", reasonAgent},
	{".augment", reasonAgent},
	{".augment-guidelines", reasonAgent},
	{".trae", reasonAgent},
	{".qwen", reasonAgent},
	{".crush.json", reasonAgent},
	{"crush.json", reasonAgent},

	{".npmrc", reasonPackage},
	{".yarnrc*", reasonPackage},
	{".yarn", reasonPackage},
	{".pnpmfile.*", reasonPackage},
	{"bunfig.toml", reasonPackage},
	{".pypirc", reasonPackage},
	{"pip.conf", reasonPackage},
	{".condarc", reasonPackage},
	{".cargo/config*", reasonPackage},
	{".cargo/credentials*", reasonPackage},
	{".bazelrc", reasonPackage},
	{".bazelisk*", reasonPackage},
	{".bundle", reasonPackage},
	{".mvn", reasonPackage},
	{"nuget.config", reasonPackage},
	{".netrc", reasonPackage},

	{".gdbinit", reasonDebugger},
	{".lldbinit", reasonDebugger},
}

// notHeld are names that a pattern of holdRules catches and that nothing
// loads.
var notHeld = map[string]bool{
	".env.example":  true,
	".env.sample":   true,
	".env.template": true,
	".env.dist":     true,
}

// HoldRules returns the table of what is held back by name. Held besides, by
// what they are: links that lead out of the workspace or to something held,
// bare repositories, .gitattributes that name a filter, diff or merge driver,
// and deletions of directories in which anything is held.
func HoldRules() []HoldRule { return append([]HoldRule(nil), holdRules...) }
