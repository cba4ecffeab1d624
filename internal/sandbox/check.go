package sandbox

import "context"

// Check reports why a sandbox of that spec could not be created, as far as that
// can be told without building anything; nil where nothing is known to be in
// the way. Quotas, and what is there of its name, are not looked at.
func (m *Manager) Check(ctx context.Context, spec Spec) error {
	spec = spec.Normalize(m.offer)
	if err := spec.Validate(m.offer); err != nil {
		return err
	}
	_, _, err := m.choose(ctx, spec)
	return err
}
