package tree

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Remove deletes path and what is below it, however deep that is. A path that
// is not there is no error.
func Remove(path string) error { return beneath.RemoveAll(context.Background(), path) }
