package hostimage

// allowed is one thing that a skeleton has of the host.
type allowed struct {
	path string // relative to the root; a * stands for part of one name
	why  string // why instances need it, and why it holds no secret
}

// table is the whole list of what is copied from the host.
var table = []allowed{
	// Loading and linking programs.
	{"etc/ld.so.cache", "finds libraries; a list of library paths"},
	{"etc/ld.so.conf", "where ldconfig looks"},
	{"etc/ld.so.conf.d", "the same, per package"},
	{"etc/alternatives", "most commands of /usr/bin lead through its links"},

	// Trust. The private half is etc/ssl/private, which is not here.
	{"etc/ssl/certs", "public certificates of authorities"},
	{"etc/ssl/openssl.cnf", "OpenSSL's defaults; it does not start without"},
	{"etc/ca-certificates.conf", "which authorities update-ca-certificates takes"},
	{"etc/pki/tls/certs", "public certificates where Fedora keeps them"},
	{"etc/pki/tls/cert.pem", "the same, as one bundle"},
	{"etc/pki/tls/openssl.cnf", "OpenSSL's defaults there"},
	{"etc/pki/ca-trust/extracted", "the bundles that the two above lead to"},
	{"etc/crypto-policies", "which algorithms TLS libraries allow"},

	// Names of things that every system has.
	{"etc/protocols", "protocol numbers"},
	{"etc/services", "port numbers"},
	{"etc/rpc", "RPC program numbers"},
	{"etc/ethertypes", "Ethernet protocol numbers"},
	{"etc/networks", "names of networks, as shipped"},
	{"etc/host.conf", "the resolver's order"},
	{"etc/gai.conf", "the resolver's address preference"},
	{"etc/mime.types", "file types by name"},
	{"etc/magic", "file types by content"},
	{"etc/magic.mime", "file types by content"},
	{"etc/shells", "which programs are shells"},
	{"etc/login.defs", "useradd and groupadd need its id ranges"},

	// What the system is, and where.
	{"etc/debian_version", "installers ask for it"},
	{"etc/os-release", "a link into /usr/lib"},
	{"etc/lsb-release", "the same, older"},
	{"etc/redhat-release", "the same, elsewhere"},
	{"etc/localtime", "a link to the time zone, so that times read alike"},
	{"etc/timezone", "its name"},
	{"etc/locale.alias", "names of languages"},
	{"etc/default/locale", "the language, nothing else"},

	// Terminals and editors.
	{"etc/terminfo", "terminals that packages add"},
	{"etc/inputrc", "line editing keys"},
	{"etc/vim", "vim does without colours otherwise"},
	{"etc/groff", "man can't format pages otherwise"},
	{"etc/manpath.config", "where man looks"},

	// Languages. Package indexes' own files (pip.conf, npmrc) may hold tokens.
	{"etc/python3*", "interpreter defaults"},
	{"etc/perl", "interpreter defaults"},
	{"etc/java-*-openjdk", "the JDK's own files are links into it"},
	{"etc/maven/m2.conf", "mvn's class path; its settings.xml may hold passwords"},
	{"etc/maven/logging", "mvn's log format"},
	{"etc/fonts", "programs that draw need a list of fonts"},
	{"etc/matplotlibrc", "matplotlib does not start without"},
	{"etc/xml", "catalogues of public document types"},
	{"etc/sgml", "catalogues of public document types"},
	{"etc/gdb/gdbinit", "the debugger's defaults"},

	// Package tools. Sources and proxies (sources.list, auth.conf, most of
	// apt.conf.d) may hold passwords: of the first, what aptSources takes is written anew.
	{"etc/dpkg", "dpkg's defaults and the vendor's name"},
	{"etc/apt/apt.conf.d/01autoremove", "what apt keeps, as shipped"},
	{"etc/apt/apt.conf.d/70debconf", "apt asks a package's questions first"},
	{"etc/apt/trusted.gpg.d", "public keys of the distribution"},
	{"etc/debconf.conf", "where answers are kept; without it packages do not install"},
	{"etc/adduser.conf", "packages add system users by it"},
	{"etc/deluser.conf", "and remove them"},
	{"etc/ucf.conf", "packages keep changed configuration by it"},
}

// linked are the top directories that lead into /usr on a merged system, and
// are parts of their own elsewhere.
var linked = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// commandDirs are where commands are looked for to note broken ones.
var commandDirs = []string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "usr/games", "usr/local/games"}

// masked are directories inside a part where an administrator's own
// configuration goes, which may hold secrets that all users may read.
var masked = []Mask{
	{"/usr/etc", "configuration of packages that were installed by hand, npm's tokens among it"},
	{"/usr/local/etc", "configuration of packages that were installed by hand"},
}

// dir is a directory of the skeleton.
type dir struct {
	path string
	mode uint32
}

// dirs are the skeleton's own directories; those above each come first.
var dirs = []dir{
	{"boot", 0o755},
	{"dev", 0o755},
	{"etc", 0o755},
	{"etc/apt", 0o755},
	{"etc/apt/preferences.d", 0o755},
	{"etc/apt/sources.list.d", 0o755},
	{"home", 0o755},
	{"home/user", 0o755},
	{"media", 0o755},
	{"mnt", 0o755},
	{"opt", 0o755},
	{"proc", 0o555},
	{"root", 0o700},
	{"run", 0o755},
	{"run/lock", 0o1777},
	{"srv", 0o755},
	{"sys", 0o555},
	{"tmp", 0o1777},
	{"usr", 0o755},
	{"var", 0o755},
	{"var/cache", 0o755},
	{"var/cache/apt", 0o755},
	{"var/cache/apt/archives", 0o755},
	{"var/cache/apt/archives/partial", 0o700},
	{"var/cache/debconf", 0o755},
	{"var/cache/ldconfig", 0o700},
	{"var/cache/man", 0o755},
	{"var/lib", 0o755},
	{"var/lib/apt", 0o755},
	{"var/lib/apt/lists", 0o755},
	{"var/lib/apt/lists/partial", 0o700},
	{"var/lib/misc", 0o755},
	{"var/lib/ucf", 0o755},
	{"var/log", 0o755},
	{"var/log/apt", 0o755},
	{"var/mail", 0o755},
	{"var/spool", 0o755},
	{"var/tmp", 0o1777},
	{"workspace", 0o755},
}
