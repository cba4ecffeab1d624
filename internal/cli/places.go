package cli

// placeDoc is a variable or a file, and what it is for.
type placeDoc struct{ name, text string }

// environmentDocs are the variables that carboy heeds. docs/cli.md has them too, and
// a test compares.
func environmentDocs() []placeDoc {
	return []placeDoc{
		{"XDG_STATE_HOME", "where records, sandboxes and the daemon's log lie; ~/.local/state if not set"},
		{"XDG_RUNTIME_DIR", "where sockets lie; /run/user/UID if not set, where that is yours, else a directory of the cache"},
		{"XDG_CACHE_HOME", "where what can be made again lies; ~/.cache if not set"},
		{"XDG_CONFIG_HOME", "where the configuration lies; ~/.config if not set"},
		{"NO_COLOR", "where set, nothing is coloured"},
	}
}

// fileDocs are the places for root without any of those variables.
func fileDocs() []placeDoc {
	return []placeDoc{
		{"/var/lib/carboy", "records, sandboxes and the daemon's log, of root; ~/.local/state/carboy of others"},
		{"/run/carboy", "sockets, of root; /run/user/UID/carboy of others"},
		{"/var/cache/carboy", "what can be made again, of root; ~/.cache/carboy of others"},
		{"/etc/carboy", "config.json and the key of the secrets, of root; ~/.config/carboy of others"},
	}
}
