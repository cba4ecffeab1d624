package client

import (
	"net/url"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// named are the parts of a path that a name or an ID follows, and how what it names is
// called.
var named = map[string]struct {
	what, is string
	list     string // a command that shows those that there are
	slash    bool   // one may hold a slash: OWNER/NAME
}{
	"sandboxes": {"sandbox", "name", "carboy ls", false},
	"snapshots": {"snapshot", "ID", "carboy snapshot ls", false},
	"templates": {"template", "name", "carboy template ls", true},
	"builds":    {"build", "ID", "carboy template ls --json", false},
	"volumes":   {"volume", "name", "carboy volume ls", false},
	"secrets":   {"secret", "name", "carboy secret ls", false},
	"keys":      {"key", "ID", "carboy key ls", false},
}

// checkNames refuses a path, escaped and below a daemon's URL, in which the name of
// something is none: a server, and a proxy before it, take a segment that is empty or
// made of dots away, and answer for another path.
func checkNames(path string) error {
	segments := strings.Split(path, "/")
	for i, s := range segments[1:] {
		kind, ok := named[segments[i]]
		if !ok {
			continue
		}
		name, err := url.PathUnescape(s)
		if err != nil || name == "" || name == "." || name == ".." || strings.Contains(name, "/") && !kind.slash {
			return sandbox.Errorf(sandbox.Invalid, "%s %.64q: not %s %s", kind.what, name, article(kind.is), kind.is).WithHint("%s", kind.list)
		}
	}
	return nil
}

func article(noun string) string {
	if noun == "ID" {
		return "an"
	}
	return "a"
}
