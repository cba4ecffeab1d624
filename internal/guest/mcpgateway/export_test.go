package mcpgateway

import (
	"testing"
	"time"
)

// SetListLimit sets how long the reading of a server's lists may take.
func SetListLimit(t *testing.T, d time.Duration) {
	was := listLimit
	listLimit = d
	t.Cleanup(func() { listLimit = was })
}
