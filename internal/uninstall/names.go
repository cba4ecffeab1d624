package uninstall

import (
	"path"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/home"
)

// place is one of a home's directories, and the names in it that are carboy's, as
// path.Match has patterns.
type place struct {
	dir   string
	names []string
}

// Names in a home. A new one has its place here, or carboy uninstall leaves it and
// says that it is not carboy's: test/arch.TestStateIsRemoved sees it.
var (
	stateNames = []string{
		"boxes", "trash", "gates", "git", "box", "sessions", "audit", "templates", "snapshots", "volumes", "images", "secrets",
		"netlogs", "disks", "projects", "programs", "told", "open-port", "applied", "shown", "synced", "fetch", "git-*.tar", ".carboy-doctor-*",
		"pods", "carboy.db", "carboy.db-*", "carboy.db.*",
		"daemon.log", "daemon.log.old", "daemon.pid", "daemon.lock",
	}
	cacheNames  = []string{"disk", "guest", "hostimage", "images", "run", ".carboy-doctor-*"}
	runNames    = []string{"*.sock", "*.sock.lock", "vsock"}
	secretNames = []string{"secrets.key"}
	configNames = []string{"secrets.key", "config.json"}
)

// places are what a home has, the records last: a removal that was killed finds the
// rest by them.
func places(d home.Dirs, config bool) []place {
	c := place{d.Config, secretNames}
	if config {
		c.names = configNames
	}
	return []place{{d.Run, runNames}, {d.Cache, cacheNames}, {d.State, stateNames}, c}
}

// Owns reports whether a name in the state directory is carboy's.
func Owns(name string) bool { return place{names: stateNames}.owns(name) }

// owns reports whether a name in the place is carboy's.
func (p place) owns(name string) bool {
	return slices.ContainsFunc(p.names, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// last reports whether a name goes after all others: what locks the home, and what
// says which sandboxes there were.
func last(name string) bool {
	for _, pattern := range []string{"carboy.db*", "daemon.*"} {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}
