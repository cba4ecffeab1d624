package sandbox

import (
	"cmp"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Floor is the weakest wall that somebody's sandboxes may have. Without a wall
// any will do.
type Floor struct {
	Wall    string
	Setting string // what says so, for the user to read
}

// allows refuses a wall that is weaker.
func (f Floor) allows(wall string) error {
	if f.Wall == "" || StrengthOf(f.Wall) > 0 && !WeakerWall(wall, f.Wall) || weak.On(weak.FloorOpen) {
		return nil
	}
	return Errorf(Denied, "isolation %s: it is weaker than %s, the weakest wall that %s allows here", wall, f.Wall, f.Setting).
		WithHint("ask for %s; who runs the daemon may allow %s: to a key by carboy key add --isolation %[2]s, to a team by limits, to all by weakest_isolation in config.json", f.Wall, wall)
}

// floor is the caller's, or its owner's where the caller has none. Of the daemon, which
// is nobody, it is that of whose sandbox it is.
func (m *Manager) floor(c Caller, owner string) Floor {
	if c.Floor.Wall != "" {
		return c.Floor
	}
	return m.quotas.Quota(cmp.Or(c.Owner, owner)).Floor
}

// admitWalls refuses a spec that names a wall that is too weak for its caller, also
// as one of several.
func (m *Manager) admitWalls(c Caller, spec Spec) error {
	f := m.floor(c, c.Owner)
	for _, wall := range spec.walls() {
		if err := f.allows(wall); err != nil {
			return err
		}
	}
	return nil
}

// admitStart refuses to start a sandbox behind a wall that is too weak for its
// caller by now.
func (m *Manager) admitStart(c Caller, e *entry) error {
	sb := m.registry.record(e)
	return m.floor(c, sb.Owner).allows(cmp.Or(sb.Backend, sb.Spec.Isolation))
}
