package template

import "context"

// Sweep is what a Service does by itself now and then.
func (s *Service) Sweep(ctx context.Context) error { return s.sweep(ctx, "") }
