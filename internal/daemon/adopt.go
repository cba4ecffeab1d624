package daemon

import (
	"context"
	"fmt"
	"time"
)

// adoptHead is how long adopting may take before requests are served
// beside it.
const adoptHead = 2 * time.Second

// adopt takes over what an earlier daemon left: sandboxes, and then what builds
// need of them.
func (d *daemon) adopt(ctx context.Context) error {
	if err := d.manager.Adopt(ctx); err != nil {
		return err
	}
	if err := d.templates.Open(ctx); err != nil {
		return fmt.Errorf("open templates: %w", err)
	}
	if err := d.pods.adopt(ctx); err != nil {
		return err
	}
	return d.sessions.open(ctx)
}

// adoptFirst gives adopting a head start, and reports whether it is done.
func (d *daemon) adoptFirst(ctx context.Context, adopted <-chan error) (done bool, err error) {
	head := time.NewTimer(adoptHead)
	defer head.Stop()
	select {
	case err := <-adopted:
		if err != nil {
			return true, fmt.Errorf("adopt sandboxes: %w", err)
		}
		return true, nil
	case <-head.C:
		return false, nil
	case <-ctx.Done():
		return false, nil // serve ends at once
	}
}
