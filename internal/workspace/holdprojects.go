package workspace

// holdProjects is what is obeyed in the directory of a project. Names are
// compared without regard to case and to what file systems ignore in names.
var holdProjects = []holdGroup{
	{reasonGit, "gitrepository-layout(5), gitmodules(5), git-config(1); git-lfs-config(5)", []string{
		".git", ".gitmodules", ".gitconfig", ".lfsconfig",
	}},

	{reasonVCS, "hgrc(5); svn book, runtime configuration; jj, sapling, breezy, darcs, fossil, cvs(1), p4 set", []string{
		".hg", ".hgrc", ".hgsub", ".svn", ".jj", ".sl", ".bzr", ".bazaar", "_darcs", ".repo", ".cvsrc",
		".fossil", ".fossil-settings", ".fslckout", "_fossil_", ".p4config", "p4config.txt",
	}},
	{reasonVCS, "svn book, runtime configuration area: tunnels, diff-cmd; mr(1) .mrconfig", []string{
		".subversion", ".mrconfig",
	}},
	{reasonVCS, "Arcanist, .arcconfig load; Review Board, .reviewboardrc is Python; tig(1), tigrc(5)", []string{
		".arcconfig", ".arcrc", ".arclint", ".reviewboardrc", ".tigrc",
	}},

	{reasonHooks, "githooks(5) core.hooksPath; husky, pre-commit, lefthook, overcommit, lint-staged, simple-git-hooks, CaptainHook, hk, GrumPHP", []string{
		".husky", ".huskyrc*", ".githooks", ".git-hooks", ".pre-commit-*.y*ml", "prek.toml",
		"lefthook.y*ml", ".lefthook.y*ml", "lefthook-local.y*ml", ".lefthook-local.y*ml", ".lefthook",
		"lefthook.toml", ".lefthook.toml", "lefthook-local.toml", ".lefthook-local.toml",
		"lefthook.json*", ".lefthook.json*", "lefthook-local.json*", ".lefthook-local.json*",
		".lefthookrc", ".overcommit.yml", ".overcommit", ".lintstagedrc*", ".simple-git-hooks.*", "simple-git-hooks.*", "captainhook.json",
		"hk.pkl", "hk.local.pkl", "grumphp.y*ml", "grumphp.y*ml.dist",
	}},

	{reasonEditor, "VS Code: tasks, launch and workspace settings; Theia: .theia/tasks.json, preferences", []string{
		".vscode", ".vscode-server", ".vscode-insiders", ".vscode-oss", ".vscodium", ".theia", "*.code-workspace",
	}},
	{reasonEditor, "JetBrains: project directory, run configurations; Fleet, Visual Studio, Eclipse builders, Xcode, BSP connection files", []string{
		".idea", ".run", "*.iml", "*.run.xml", ".fleet", ".vs", ".externaltoolbuilders", ".bsp",
	}},
	{reasonEditor, "Zed, Nova, Sublime Text (projects, build systems), Helix, Kakoune, micro, Atom, TextMate: project settings", []string{
		".zed", ".nova", "*.sublime-project", "*.sublime-build", ".helix", ".kakrc", ".atom", ".tm_properties",
	}},
	{reasonEditor, "vim(1) 'exrc', 'modeline'; Neovim exrc, lazy.nvim; localvimrc, vim-lsp, coc.nvim, YouCompleteMe, vimspector; ideavim", []string{
		".vim", ".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".exrc", "_exrc", "vimfiles", ".nvim", ".nvimrc", ".nvim.lua", ".lazy.lua",
		".lvimrc", ".local.vimrc", ".vimrc.local", ".vimspector.json", "coc-settings.json", ".ycm_extra_conf.py", ".ideavimrc", ".neoconf.json",
	}},
	{reasonEditor, "Emacs manual: init file, directory variables, desktops; Spacemacs, Doom, Projectile, Gnus", []string{
		".emacs", ".emacs.el", ".emacs.elc", ".emacs.d", "_emacs", ".emacs.desktop*", ".abbrev_defs", ".dir-locals.el", ".dir-locals-2.el",
		".spacemacs*", ".doom.d", ".projectile", ".gnus*",
	}},
	{reasonEditor, "language servers: rust-analyzer overrideCommand, LuaLS plugins, Solargraph plugins, tern plugins; ctags(1) files", []string{
		"rust-analyzer.toml", ".rust-analyzer.toml", ".luarc.json*", ".solargraph.yml", ".tern-project", ".ctags", ".ctags.d",
	}},
	{reasonEditor, "VS Code, PyCharm, direnv: the interpreter of a virtual environment in the directory is run; venv, PEP 405", []string{
		".venv", "venv/bin", "venv/scripts", "env/bin", "env/scripts",
	}},

	{reasonCI, "GitHub, Gitea and Forgejo Actions; GitLab CI; Azure Pipelines, Bitbucket", []string{
		".github", ".gitlab", ".gitlab-ci*", ".gitea", ".forgejo", "azure-pipelines*.y*ml", ".azure-pipelines", ".azuredevops", "bitbucket-pipelines.yml",
	}},
	{reasonCI, "CircleCI, Jenkins, Travis, Woodpecker, Drone, Buildkite, Cirrus, AppVeyor, builds.sr.ht, Semaphore, TeamCity, Tekton", []string{
		".circleci", "jenkinsfile*", ".travis.y*ml", ".woodpecker*", ".drone.y*ml", ".drone.star", ".drone.jsonnet", ".buildkite",
		".cirrus.y*ml", ".cirrus.star", "appveyor.yml", ".appveyor.yml", ".builds", ".build.yml", ".semaphore", ".teamcity", ".tekton",
	}},
	{reasonCI, "Cloud Build, CodeBuild, Codefresh, Harness, Zuul, Screwdriver, Bitrise, Codemagic, Packit, Read the Docs, Renovate, Mergify", []string{
		"cloudbuild.y*ml", "buildspec.y*ml", ".codefresh", "codefresh.y*ml", ".harness", "zuul.d", ".zuul.d", "zuul.y*ml", ".zuul.y*ml",
		"screwdriver.y*ml", "bitrise.yml", "codemagic.yaml", ".packit.y*ml", "packit.y*ml", ".readthedocs.y*ml",
		"renovate.json*", ".renovaterc*", ".mergify.y*ml", ".onedev-buildspec.yml",
	}},

	{reasonShell, "direnv(1); mise, asdf, rtx, RVM, autoenv, zsh-autoenv, devenv, devbox", []string{
		".envrc", ".direnv", ".direnvrc", ".tool-versions", "mise.toml", "mise.*.toml", ".mise.toml", ".mise.*.toml", ".mise", "mise/config.toml", ".rtx.toml", ".rtx.*.toml",
		".rvmrc", ".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh", "devenv.nix", "devenv.yaml", ".devenv*", "devbox.json", ".devbox",
	}},

	{reasonEnv, "dotenv, python-dotenv, Docker Compose env_file, Flask, wrangler", []string{
		".env", ".env.*", ".flaskenv", ".dev.vars", ".dev.vars.*",
	}},

	{reasonContainer, "containers.dev; Gitpod, devfile.io, Firebase Studio, Replit, CodeSandbox, StackBlitz", []string{
		".devcontainer", ".devcontainer.json", ".gitpod.yml", ".gitpod.dockerfile", ".gitpod", "devfile.yaml", ".devfile.yaml",
		".idx", ".replit", "replit.nix", ".codesandbox", ".stackblitzrc",
	}},
}

// holdAgents is what gives orders to an agent on the host, or starts tools for
// it, wherever it stands.
var holdAgents = []holdGroup{
	{reasonAgent, "GitHub Copilot: repository instructions, prompt files, chat modes, agents, skills", []string{
		".github/copilot-instructions.md", ".github/instructions", ".github/prompts", ".github/chatmodes", ".github/agents", ".github/skills",
		"copilot-instructions.md", "*.instructions.md", "*.prompt.md", "*.chatmode.md", "*.agent.md", ".copilot",
	}},
	{reasonAgent, "agents.md; agentskills.io", []string{
		"agents.md", "agents.override.md", "agents.local.md", "agent.md", ".agent", ".agents", ".agent.md", "skill.md",
	}},
	{reasonAgent, "Claude Code: memory, settings, hooks; Claude Desktop: configuration", []string{
		".claude", ".claude.json*", ".claude-plugin", "claude.md", "claude.local.md", ".claude.md", "claude_desktop_config.json",
	}},
	{reasonAgent, "Model Context Protocol: servers that clients start", []string{
		".mcp.json", "mcp.json", ".mcp", "mcp_config.json", "mcp-config.json", "mcp_settings.json", "cline_mcp_settings.json",
	}},
	{reasonAgent, "Cursor rules; Windsurf, Codeium; Cline; Roo Code; Kilo Code", []string{
		".cursor", ".cursor-server", ".cursorrules", "*.mdc", ".windsurf", ".windsurf-server", ".windsurfrules", ".codeium", ".cline", ".clinerules*",
		".roo", ".roomodes", ".roorules*", ".kilocode", ".kilocodemodes", ".kilocoderules*",
	}},
	{reasonAgent, "Codex, Gemini CLI, Antigravity, Jules, Qwen Code, iFlow, OpenCode, Crush, Aider, Goose, OpenHands", []string{
		".codex", ".gemini", "gemini.md", "gemini-extension.json", ".antigravity", ".jules", ".qwen", "qwen.md", ".iflow", "iflow.md",
		".opencode", "opencode.json*", ".crush", ".crush.json", "crush.json", "crush.md", ".aider*", ".goose", ".goosehints", ".openhands", ".openhands_instructions",
	}},
	{reasonAgent, "Zed rules; JetBrains Junie and AI Assistant; Kiro, Amazon Q; Continue; Augment; Trae; Warp; Tabnine; Cody; Factory; Amp", []string{
		".rules", ".junie", ".aiassistant", ".kiro", ".amazonq", ".continue", ".continuerules", ".augment", ".augment-guidelines",
		".trae", ".warp", "warp.md", ".tabnine", ".sourcegraph", ".cody", ".factory", ".amp",
	}},
	{reasonAgent, "Serena, Taskmaster, Spec Kit, Ruler, Rulesync, Devin, CodeBuddy, Lingma, Qoder, Rovo Dev, Firebender, Replit, CodeRabbit, Greptile, Sweep", []string{
		".serena", ".taskmaster", ".specify", ".ruler", ".rulesync", ".devin", ".codebuddy", "codebuddy.md", ".lingma", ".qoder", ".rovodev",
		".firebender", "firebender.json", "replit.md", ".coderabbit.y*ml", "greptile.json", "sweep.yaml", ".zencoder", ".vibe", ".plandex*",
	}},
}
