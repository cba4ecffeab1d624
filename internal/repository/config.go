package repository

import (
	"errors"
	"slices"
	"strings"
)

// setting is a line of git's configuration. Section and name are in lower case.
type setting struct{ section, sub, name, value string }

// kept are the settings that a sandbox has of a repository's own: what git needs for the
// tree, its branches and where they come from. All others stay outside: among them are
// credentials, files to include and programs to run.
var kept = map[string][]string{
	"core": {
		"repositoryformatversion", "filemode", "symlinks", "ignorecase", "precomposeunicode", "autocrlf", "eol", "safecrlf",
		"logallrefupdates", "sparsecheckout", "sparsecheckoutcone", "splitindex", "untrackedcache",
	},
	"index":      {"sparse"},
	"extensions": {"noop", "objectformat", "compatobjectformat", "partialclone", "preciousobjects", "refstorage", "worktreeconfig", "relativeworktrees"},
	"remote":     {"url", "pushurl", "fetch", "push", "tagopt", "promisor", "partialclonefilter"},
	"branch":     {"remote", "pushremote", "merge", "rebase"},
	"user":       {"name", "email"},
}

// forSandbox returns of a configuration what a sandbox is to have, written anew: however
// git would have read the rest of it, it is not there. tree is what it says of the tree.
func forSandbox(text, tree string) ([]byte, error) {
	if len(text) > maxText {
		return nil, errors.New("its configuration has more than 1 MiB")
	}
	var out strings.Builder
	for _, s := range parseConfig(text) {
		named := s.section == "remote" || s.section == "branch"
		if !slices.Contains(kept[s.section], s.name) || named != (s.sub != "") || strings.Contains(s.sub, "://") || strings.ContainsAny(s.sub+s.value, "\x00") {
			continue
		}
		out.WriteString("[" + s.section)
		if named {
			out.WriteString(` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s.sub) + `"`)
		}
		value := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(withoutSecret(s.value))
		out.WriteString("]\n\t" + s.name + ` = "` + value + "\"\n")
	}
	out.WriteString("\n[core]\n\tworktree = " + tree + "\n\tbare = false\n")
	return []byte(out.String()), nil
}

// withoutSecret returns an address without what may be a secret in it: the password, and
// for the web also the user, which is as often a token, and the query.
func withoutSecret(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return address
	}
	i := strings.IndexAny(rest, "/?#")
	if i < 0 {
		i = len(rest)
	}
	host, path := rest[:i], rest[i:]
	user := ""
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		user, host = host[:at], host[at+1:]
	}
	user, _, _ = strings.Cut(user, ":")
	if s := strings.ToLower(scheme); s != "ssh" && s != "git+ssh" && s != "ssh+git" {
		user = ""
		if i := strings.IndexAny(path, "?#"); i >= 0 {
			path = path[:i]
		}
	}
	if user != "" {
		user += "@"
	}
	return scheme + "://" + user + host + path
}

// configValue returns what a configuration says last of a key without a subsection, which
// is SECTION.NAME in lower case.
func configValue(text, key string) (value string) {
	section, name, _ := strings.Cut(key, ".")
	for _, s := range parseConfig(text) {
		if s.section == section && s.sub == "" && s.name == name {
			value = s.value
		}
	}
	return value
}

// parseConfig reads a configuration as git does, and passes over what git would refuse.
func parseConfig(text string) (all []setting) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	var at setting
	for {
		text = strings.TrimLeft(text, " \t\n\r\v\f")
		switch {
		case text == "":
			return all
		case text[0] == '[':
			at, text = parseSection(text[1:])
			continue
		}
		n := strings.IndexFunc(text, func(c rune) bool {
			return c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		})
		if n < 0 {
			n = len(text)
		}
		s := at
		s.name, text = strings.ToLower(text[:n]), strings.TrimLeft(text[n:], " \t")
		switch {
		case n > 0 && (text == "" || strings.ContainsRune("\n#;", rune(text[0]))):
			s.value = "true"
		case n > 0 && text[0] == '=':
			var ok bool
			if s.value, text, ok = parseValue(text[1:]); !ok {
				n = 0
			}
		default: // a comment, or a line that git refuses
			n = 0
		}
		if n > 0 && at.section != "" {
			all = append(all, s)
		}
		_, text, _ = strings.Cut(text, "\n")
	}
}

// parseSection reads what follows a bracket, and returns the text behind it.
func parseSection(text string) (at setting, rest string) {
	i := strings.IndexAny(text, "]\"\n")
	if i < 0 {
		return setting{}, ""
	}
	at.section = strings.ToLower(strings.TrimSpace(text[:i]))
	if text[i] != '"' {
		at.section, at.sub, _ = strings.Cut(at.section, ".")
		return at, text[i+1:]
	}
	var sub strings.Builder
	for i++; i < len(text) && text[i] != '\n'; i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] != '\n':
			i++
		case text[i] == '"':
			at.sub = sub.String()
			return at, strings.TrimPrefix(text[i+1:], "]")
		}
		sub.WriteByte(text[i])
	}
	return setting{}, text[min(i, len(text)):]
}

// parseValue reads a value to its line's end, and returns the text from there.
func parseValue(text string) (value, rest string, ok bool) {
	text = strings.TrimLeft(text, " \t")
	var out strings.Builder
	quoted, end := false, 0 // spaces behind end count only when more follows
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\n':
			return out.String()[:end], text[i:], !quoted
		case c == '"':
			quoted, end = !quoted, out.Len()
			continue
		case !quoted && (c == '#' || c == ';'):
			_, rest, _ = strings.Cut(text[i:], "\n")
			return out.String()[:end], "\n" + rest, true
		case c == '\\':
			if i++; i == len(text) {
				return "", "", false
			}
			known := strings.IndexByte("\nntb\\\"", text[i])
			if known < 0 {
				return "", text[i:], false
			}
			if known > 0 {
				out.WriteByte(" \n\t\b\\\""[known])
				end = out.Len()
			}
			continue
		}
		out.WriteByte(c)
		if quoted || c != ' ' && c != '\t' {
			end = out.Len()
		}
	}
	return out.String()[:end], "", !quoted
}
