package secret

import (
	"context"
	"path"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Known returns, by their names, the values of secrets as they could have come out of what may use
// them. It runs no command, whose values are those that are kept now. What is not there has no value.
// It fails with Unavailable where a file can't be read.
func (s *Store) Known(ctx context.Context, owner, sandboxID string, names []string) (map[string]Value, error) {
	all := map[string]Value{}
	for _, name := range names {
		m, err := s.find(ctx, owner, sandboxID, name, s.keptAt)
		switch {
		case sandbox.KindOf(err) == sandbox.NotFound:
		case err != nil:
			return nil, err
		case !m.Value.Empty():
			all[name] = m.Value
		}
	}
	return all, nil
}

// keptAt is valueAt without running a command.
func (s *Store) keptAt(ctx context.Context, o owner, place, name string) (Minted, error) {
	r, err := s.read(place, name)
	if err != nil {
		return Minted{}, err
	}
	r.wipe()
	if len(r.Command) > 0 {
		m, _, _ := s.minted.kept(path.Join(place, name), s.o.Now())
		return m, nil
	}
	return s.valueAt(ctx, o, place, name)
}
