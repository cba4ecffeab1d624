package workspace

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
