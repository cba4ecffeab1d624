package files

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// maxPath is the kernel's limit, with the NUL that it counts.
const maxPath = 4096

var (
	errNUL       = errors.New("a path can't hold a NUL byte")
	errLong      = fmt.Errorf("the path is longer than %d bytes", maxPath-1)
	errOtherHome = errors.New("the home of another user can't be named by ~; give its path")
)

// Resolve returns the absolute, clean path that p means for a user with the
// given home, starting in dir; an empty dir means home. home and dir must be
// absolute. It looks at nothing but the text.
func Resolve(p, home, dir string) (string, error) {
	if dir == "" {
		dir = home
	}
	switch {
	case p == "~":
		p = home
	case strings.HasPrefix(p, "~/"):
		p = path.Join(home, p[1:])
	case strings.HasPrefix(p, "~"):
		return "", errOtherHome
	case !path.IsAbs(p):
		p = path.Join(dir, p)
	}
	switch p = path.Clean(p); {
	case strings.IndexByte(p, 0) >= 0:
		return "", errNUL
	case len(p) >= maxPath:
		return "", errLong
	}
	return p, nil
}
