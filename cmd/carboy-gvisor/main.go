// Command carboy-gvisor boots instances of the default wall, and is gVisor's sentry and
// gofer in them. Carboy carries it inside, and its daemon executes it: by hand it does
// nothing.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor/boot"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/role"
)

func main() {
	role.Become(boot.Roles(makeLink))
	fmt.Fprintln(os.Stderr, "carboy-gvisor:", order.ErrNone)
	os.Exit(2)
}

// makeLink makes the link of an instance that has no root, in its own network namespace.
func makeLink(ctx context.Context) (netns, tap *os.File, err error) {
	d, err := link.Create(ctx)
	if err != nil {
		return nil, nil, err
	}
	return d.NetNS, d.TAP, nil
}
