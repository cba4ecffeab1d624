package workspace

// HoldRule is a kind of path that Apply leaves alone until the user names it,
// because something on the host executes it or takes orders from it.
type HoldRule struct {
	Pattern string // one name, or several joined by slashes, anywhere in a path; * as in a shell
	Reason  string
	Source  string // what says that it is obeyed: a manual, or a program's documentation
}

// The reasons, each short enough for a column.
const (
	reasonGit       = "git runs or obeys it on the host"
	reasonVCS       = "a version control system runs or obeys it on the host"
	reasonHooks     = "git hooks run it on the host"
	reasonEditor    = "an editor runs or obeys it when the directory is opened"
	reasonCI        = "CI runs it with its own secrets"
	reasonProject   = "it says what carboy's own sandboxes may do"
	reasonShell     = "a shell or version manager loads it on entering the directory"
	reasonStartup   = "a shell runs it when it starts"
	reasonEnv       = "tools load it as environment"
	reasonContainer = "an editor builds and enters a container from it"
	reasonAgent     = "an AI agent on the host takes orders from it"
	reasonPackage   = "a package manager or build tool takes registries, credentials or commands from it"
	reasonDebugger  = "a debugger runs it on start"
	reasonLanguage  = "an interpreter or virtual machine runs or obeys it when it starts"
	reasonDesktop   = "a desktop or login session starts or obeys it"
	reasonLogin     = "programs take hosts, keys or commands from it"
	reasonProgram   = "a program of the user's runs or obeys it when it starts"
	reasonCommands  = "commands are found in it by their names"
)

// holdGroup is rules of one reason and one source.
type holdGroup struct {
	reason, source string
	patterns       []string
}

// notHeld are names that a pattern of the table catches and that nothing
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
// Of two rules for one name the first counts.
func HoldRules() []HoldRule {
	var rules []HoldRule
	for _, groups := range [][]holdGroup{holdProjects, holdAgents, holdTools, holdHomes} {
		for _, g := range groups {
			for _, p := range g.patterns {
				rules = append(rules, HoldRule{p, g.reason, g.source})
			}
		}
	}
	return rules
}

// holdHomes is what is obeyed in the home of a user, which a workspace may be,
// or hold. What programs keep below .config and .local is held whole: nearly
// each of them runs something that its configuration names.
var holdHomes = []holdGroup{
	{reasonLogin, "XDG Base Directory Specification: configuration, data and programs of a user", []string{
		".config", ".local",
	}},

	{reasonStartup, "bash(1) FILES, bash-completion; sh(1) ENV, profile; ksh(1), mksh(1), ash", []string{
		".profile", ".profile.d", ".bashrc*", ".bash_*", ".bash-*", ".inputrc", ".shrc", ".shinit", ".ashrc", ".kshrc", ".mkshrc", ".lkshrc",
	}},
	{reasonStartup, "zsh(1) STARTUP/SHUTDOWN FILES; Oh My Zsh, Prezto, Zim, Powerlevel10k, Antigen, zplug, zinit", []string{
		".zshenv", ".zshrc*", ".zprofile", ".zlogin", ".zlogout", ".zsh", ".zsh_*", ".zshrc.d", ".zcompdump*", ".zfunc*", ".oh-my-zsh", ".zpreztorc", ".zprezto",
		".zim", ".zimrc", ".p10k.zsh", ".antigen*", ".zplug", ".zinit", ".zcompcache", ".zkbd",
	}},
	{reasonStartup, "fish(1) CONFIGURATION FILES; csh(1), tcsh(1); rc(1); Elvish, Nushell, Xonsh, Oils, PowerShell profiles; starship", []string{
		"fish/config.fish", "fish/conf.d", "fish/functions", "fish/completions", "config.fish", "fish_variables",
		".cshrc", ".tcshrc", ".login", ".logout", ".rcrc", ".elvish", ".xonshrc*", ".oshrc", "profile.ps1", "*_profile.ps1", "starship.toml",
	}},

	{reasonStartup, "bash dotfiles' own files, dircolors(1); Oh My Bash, Liquid Prompt, Zgen, zi; login_conf(5); terminfo(5), termcap(5)", []string{
		".aliases", ".alias", ".functions", ".exports", ".dircolors", ".dir_colors", ".oh-my-bash", ".liquidpromptrc", ".zgen", ".zgenom", ".zi",
		".login_conf", ".terminfo", ".termcap",
	}},

	{reasonLogin, "ssh(1), ssh_config(5), sshd(8) FILES; rlogin, Kerberos", []string{
		".ssh", "authorized_keys*", ".rhosts", ".shosts", ".k5login", ".k5users",
	}},
	{reasonLogin, "gpg(1); Docker, Kubernetes, AWS, Azure, Google, Terraform, Vault, s3cmd, boto: configuration, credential helpers, exec plugins", []string{
		".gnupg", ".docker", ".dockercfg", ".kube", "kubeconfig", ".aws", ".azure", ".gcloud", ".boto", ".s3cfg", ".terraformrc", "terraform.rc", ".terraform.d",
		".vault-token", ".vault", ".helm", ".minikube", ".podman", ".pki", ".authinfo*", ".password-store",
	}},

	{reasonDesktop, "Desktop Entry and Autostart Specifications; mimeapps.list; D-Bus services; KDE service menus; thumbnailers", []string{
		"*.desktop", "autostart-scripts", "mimeapps.list", ".mailcap", ".mime.types", "dbus-1/services", "share/applications",
		"kio/servicemenus", "kservices5", "*.thumbnailer", "user-dirs.dirs", ".directory",
	}},
	{reasonDesktop, "systemd.unit(5) user units; environment.d(5); pam_env(8); crontab(5); startx(1), Xsession(5)", []string{
		"systemd/user", "environment.d", ".pam_environment", ".crontab", ".xinitrc", ".xserverrc", ".xsession", ".xsessionrc", ".xprofile",
		".xresources*", ".xdefaults*", ".dmrc", ".xbindkeysrc*", ".xmodmap*", ".xscreensaver", ".gnomerc", ".kde", ".kde4",
	}},
	{reasonDesktop, "i3, sway, xmonad, awesome, bspwm, sxhkd, fluxbox, openbox, fvwm, twm: configuration", []string{
		".i3", ".sway", ".xmonad", ".awesome", ".sxhkdrc", ".bspwmrc", ".fluxbox", ".openbox", ".fvwm*", ".twmrc", ".icewm", ".enlightenment", ".fehbg",
	}},
	{reasonDesktop, "vncserver(1) xstartup; xrdp startwm.sh; Compose(5); jwm, pekwm, ratpoison, StumpWM, Blackbox, ctwm, mwm, dwm autostart, herbstluftwm; conky; Wine", []string{
		".vnc", "startwm.sh", ".xcompose", ".jwmrc", ".pekwm", ".ratpoisonrc", ".stumpwmrc", ".stumpwm.d", ".blackboxrc", ".ctwmrc", ".mwmrc", ".dwm",
		".herbstluftwm", ".conkyrc", ".wine",
	}},
	{reasonDesktop, "launchd.plist(5), macOS; Windows shell links, desktop.ini, autorun.inf, startup folder", []string{
		"library/launchagents", "library/launchdaemons", "library/startupitems", "library/preferences",
		"*.lnk", "*.scf", "desktop.ini", "autorun.inf", "programs/startup", ".wslconfig",
	}},

	{reasonProgram, "tmux(1), screen(1), byobu(1); less(1) lesskey, lessopen; nano(1); sensible-editor(1); rg(1) --pre; fzf; GTK engines; ALSA and PulseAudio plugins", []string{
		".tmux.conf*", ".tmux", ".screenrc", ".byobu", ".less", ".lesskey", ".lessfilter", ".nanorc", ".manpath", ".editrc", ".dialogrc",
		".selected_editor", ".ripgreprc", ".fzf*", ".iterm2*", ".gtkrc*", ".asoundrc", ".pulse",
	}},
	{reasonProgram, "aliases(5) .forward; procmail(1), fetchmail(1), msmtp(1), mutt(1), mailx(1), maildrop, vacation(1)", []string{
		".forward", ".procmailrc", ".fetchmailrc", ".msmtprc", ".muttrc", ".mutt", ".neomuttrc", ".neomutt", ".mailrc", ".mailfilter", ".vacation.msg",
	}},
	{reasonProgram, "mbsync(1) PassCmd, OfflineIMAP pythonfile, getmail, urlview(1), slrn(1); lftp(1), kermit(1); Pidgin, HexChat plugins; ncmpcpp, MPlayer, mpv", []string{
		".mbsyncrc", ".isyncrc", ".offlineimaprc", ".getmail", ".urlview", ".slrnrc", ".lftp", ".lftprc", ".kermrc", ".purple", ".hexchat", ".xchat2",
		".ncmpcpp", ".mplayer", ".mpv",
	}},
	{reasonProgram, "ack(1) .ackrc; top(1) toprc; Taskwarrior hooks; GIMP plug-ins; LibreOffice and OpenOffice macros; Ghidra, IDA plug-ins", []string{
		".ackrc", ".toprc", ".taskrc", ".gimp-*", ".libreoffice", ".openoffice.org", ".ghidra", ".idapro",
	}},
	{reasonProgram, "lynx, w3m, elinks, mc(1), vifm, ranger, newsboat, irssi, weechat; xterm, kitty, urxvt extensions; watchman", []string{
		".lynxrc", ".w3m", ".elinks", ".mc", ".vifm", ".newsboat", ".irssi", ".weechat", ".urxvt", ".wezterm.lua", ".hammerspoon", ".finicky.js",
	}},
	{reasonProgram, "Firefox, Thunderbird and Chromium profiles: extensions, native messaging hosts", []string{
		".mozilla", ".thunderbird", ".chromium", "native-messaging-hosts", "nativemessaginghosts",
	}},

	{reasonCommands, "homes of version managers, whose shims are on PATH: asdf, nvm, pyenv, rbenv, jenv, SDKMAN, Volta, Deno, Bun, Rye, proto", []string{
		".asdf", ".asdfrc", ".nvm", ".fnm", ".pyenv", ".rbenv", ".rvm", ".nodenv", ".goenv", ".jenv", ".sdkman", ".sdkmanrc", ".volta", ".deno", ".bun", ".rye", ".proto",
		".phpenv", ".plenv", ".tfenv", ".linuxbrew", ".krew", ".dotnet", ".ghcup", ".nimble", ".elan", ".foundry", ".wasmtime", ".wasmer",
		".npm-global", ".npm-packages", ".poetry", ".phpbrew", ".nodebrew", ".gvm", ".swiftly", ".juliaup",
	}},
}

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
	{reasonCI, "GitHub and GitLab: who has to review, at the root and in docs; Dependabot of old; Wercker, Azure, Netlify, Vercel", []string{
		"codeowners", ".dependabot", "wercker.yml", ".vsts-ci.y*ml", "netlify.toml", "vercel.json",
	}},

	{reasonProject, "docs/project-file.md", []string{".carboy.toml", ".carboy/agents"}},
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

// holdTools is what package managers, build tools, interpreters and debuggers
// obey, in a project or in a home.
var holdTools = []holdGroup{
	{reasonPackage, "npm npmrc(5); yarn, .yarnrc.yml yarnPath, Plug'n'Play; pnpm, .pnpmfile.cjs; bunfig.toml; Deno, Bun, Volta homes", []string{
		".npmrc", ".yarnrc*", ".yarn", ".pnp.*", ".pnpmfile.*", "pnpmfile.*", "bunfig.toml", ".bunfig.toml", ".npm", ".pnpm", ".pnpm-store",
	}},
	{reasonPackage, "pip configuration; .pypirc; uv.toml; pdm.toml; poetry.toml; conda .condarc; Pixi; setuptools pydistutils.cfg; buildout", []string{
		".pypirc", "pip.conf", "pip.ini", ".pip", "uv.toml", "pdm.toml", ".pdm.toml", ".pdm-python", "poetry.toml",
		".condarc", "condarc", ".condarc.d", ".mambarc", ".conda", ".pixi", ".pydistutils.cfg", ".buildout",
	}},
	{reasonPackage, "The Cargo Book, configuration and credentials; rustup overrides, toolchain path", []string{
		".cargo/config*", ".cargo/credentials*", ".cargo/env*", ".cargo/bin", ".rustup", "rust-toolchain", "rust-toolchain.toml",
	}},
	{reasonPackage, "Gradle: properties (jvmargs), wrapper (distributionUrl, jar), init scripts", []string{
		".gradle", "gradle.properties", "gradle-wrapper.properties", "gradle-wrapper.jar", "init.gradle*", "gradle-daemon-jvm.properties",
	}},
	{reasonPackage, "Maven: .mvn/jvm.config, extensions.xml, settings.xml, .mavenrc; sbt launcher: .sbtopts, .jvmopts; Ivy; Coursier; Leiningen; Mill", []string{
		".mvn", ".m2", ".mavenrc", ".jvmopts", ".sbtopts", ".sbtrc", ".sbt", ".ivy2", ".coursier", ".lein", "profiles.clj", ".mill-jvm-opts", ".mill-opts",
	}},
	{reasonPackage, "bazelrc, Bazelisk tools/bazel wrapper; Buck .buckconfig; Pants; CMake user presets", []string{
		".bazelrc", "user.bazelrc", ".bazelisk*", ".bazelversion", "tools/bazel", ".buckconfig*", ".pants.rc", "cmakeuserpresets.json",
	}},
	{reasonPackage, "Bundler configuration, .gemrc; Composer auth.json; NuGet.Config; Hex, Mix; LuaRocks; CPAN; opam; Cabal, Stack; Conan; Swift PM; pub", []string{
		".bundle", ".gem", ".gemrc", "auth.json", ".composer", "nuget.config", ".nuget", ".hex", ".mix", ".luarocks", ".cpan", ".cpanm",
		".opam", ".opamrc", ".cabal", ".stack", ".conan", ".conan2", ".swiftpm", ".pub-cache",
	}},
	{reasonPackage, "go help environment, GOENV; Nix: nix.conf, profiles, flakes' registries; Homebrew", []string{
		"go/env", "nix.conf", ".nix-profile", ".nix-defexpr", ".nix-channels", ".nixpkgs", ".homebrew",
	}},
	{reasonPackage, "Ansible configuration, from the current directory too; Vagrant, Chef, Pulumi homes; latexmk(1) .latexmkrc is Perl; texmf.cnf", []string{
		"ansible.cfg", ".ansible.cfg", ".ansible", ".vagrant.d", ".chef", ".pulumi", ".latexmkrc", "latexmkrc", "texmf.cnf",
	}},
	{reasonPackage, "Debian: dput.cf(5), devscripts.conf(5), quilt(1), pbuilderrc(5), sbuild.conf(5), gbp.conf(5); rpm macros; makepkg.conf(5)", []string{
		".dput.cf", ".devscripts", ".quiltrc", ".pbuilderrc", ".sbuildrc", ".gbp.conf", ".rpmmacros", ".makepkg.conf",
	}},
	{reasonPackage, "Apache Ant .antrc, ant.conf; ccache prefix_command; SCons site directories; Boot; Packer, TFLint plug-ins; Rails .railsrc; Capistrano", []string{
		".antrc", ".ant", ".ccache", ".scons", ".boot", ".packer.d", ".packerconfig", ".tflint.d", ".tflint.hcl", ".railsrc", ".caprc", ".powrc", ".powenv",
	}},
	{reasonPackage, "netrc(5), curl(1), wget(1): credentials and options", []string{
		".netrc", "_netrc", ".curlrc", "_curlrc", ".wgetrc",
	}},

	{reasonDebugger, "gdb: init files, auto-loaded scripts; lldb: .lldbinit; radare2, pwndbg, GEF", []string{
		".gdbinit", ".gdbearlyinit", ".gdb", "*-gdb.gdb", "*-gdb.py", "*-gdb.scm", ".lldbinit*", ".radare2rc", ".rizinrc", ".gef.rc", ".cgdb",
	}},
	{reasonDebugger, "Python pdb, .pdbrc; Ruby byebug, .byebugrc, debug, .rdbgrc; Perl perldebug, .perldb; Delve", []string{
		".pdbrc*", ".byebugrc", ".rdbgrc*", ".rdebugrc", ".perldb", ".dlv",
	}},

	{reasonDebugger, "Valgrind .valgrindrc; ltrace(1); perf-config(1); SystemTap; DDD; pwntools", []string{
		".valgrindrc", ".ltrace.conf", ".perfconfig", ".systemtap", ".ddd", ".pwn.conf",
	}},

	{reasonLanguage, "Node.js modules, loading from the global folders; prove(1) .proverc; tclsh(1), wish(1); Jython registry; IDLE, Spyder", []string{
		".node_modules", ".node_libraries", ".proverc", ".tclshrc", ".wishrc", ".jython", ".idlerc", ".spyder*",
	}},
	{reasonLanguage, "Ammonite predef.sc; nREPL .nrepl.edn; Chicken csi, Gambit, SWI-Prolog init files; PARI/GP .gprc, GAP .gaprc, Scilab; ripl", []string{
		".ammonite", ".nrepl.edn", ".csirc", ".gambini", ".swiplrc", ".gprc", ".gaprc", ".scilab", ".riplrc",
	}},
	{reasonLanguage, "Python site: sitecustomize, usercustomize, .pth files; venv pyvenv.cfg; PYTHONSTARTUP; IPython, Jupyter, ptpython", []string{
		"sitecustomize.py", "usercustomize.py", "sitecustomize", "usercustomize", "sitecustomize.*", "usercustomize.*", "*.pth", "*._pth", "pyvenv.cfg",
		".pythonrc*", ".pythonstartup*", ".python_startup*", ".ipython", "ipython_config.py", "ipython_kernel_config.py",
		".jupyter", "jupyter_*_config.py", "jupyter_*_config.json", ".ptpython",
	}},
	{reasonLanguage, "R Startup: .Rprofile, .Renviron, .RData; Octave .octaverc; MATLAB startup.m; Julia startup.jl; gnuplot, Sage, Maxima init files", []string{
		".rprofile*", "rprofile.site", ".renviron*", ".rdata", ".octaverc", ".octave", "startup.m", ".julia", ".juliarc.jl", ".gnuplot", ".sage", ".maxima",
	}},
	{reasonLanguage, "Ruby irb, .irbrc; pry; Erlang .erlang; Elixir IEx .iex.exs; Perl Reply; PHP php.ini, .user.ini, PsySH", []string{
		".irbrc", "_irbrc", ".pryrc", ".erlang", ".erlang.cookie", ".iex.exs", ".replyrc", "php.ini", ".user.ini", ".psysh.php", ".psysh",
	}},
	{reasonLanguage, "GHCi .ghci; OCaml .ocamlinit; utop; SBCL, CLISP, ECL, CCL init files; Guile .guile; Racket; Scala; Clojure", []string{
		".ghci", ".haskeline", ".ocamlinit", ".utoprc", ".sbclrc", ".clisprc*", ".eclrc", ".ccl-init.lisp", ".guile", ".racketrc", ".scalarc", ".clojure",
	}},
	{reasonLanguage, "java launcher: JDK_JAVA_OPTIONS argument files; JShell; HotSpot .hotspotrc; Groovy; Node .noderc; Lua", []string{
		".hotspotrc", ".hotspot_compiler", ".java", ".groovy", ".noderc*", ".node_repl*", ".luainit*",
	}},
	{reasonLanguage, "psql .psqlrc, pg_service.conf; sqlite3 .sqliterc; MySQL option files; DuckDB; mongosh; redis-cli", []string{
		".psqlrc*", ".pg_service.conf", ".pgpass", ".sqliterc", ".my.cnf", ".mylogin.cnf", ".duckdbrc", ".mongorc.js", ".mongoshrc.js", ".redisclirc",
	}},
}
