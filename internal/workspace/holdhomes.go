package workspace

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
