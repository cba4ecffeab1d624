package sandbox

import "context"

// Like returns a Spec by which another sandbox can be made as this one was: it
// has no name, and the values of secrets that are this sandbox's alone, which
// nobody else is to see. What the sandbox wrote is no part of it.
func (m *Manager) Like(ctx context.Context, c Caller, ref string) (Spec, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return Spec{}, err
	}
	s := sb.Spec
	s.Name, s.Ephemeral = "", false
	if m.gate != nil && s.Networked() && len(s.Secrets) > 0 {
		if s.SecretValues, err = m.gate.Values(ctx, sb); err != nil {
			return Spec{}, failure(err, sb.Spec.Name, "look up its secrets")
		}
	}
	return s, nil
}
