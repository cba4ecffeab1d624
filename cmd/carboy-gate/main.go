// Command carboy-gate is the way out of one sandbox. Carboy carries it inside, and its
// daemon executes it: by hand it does nothing.
package main

import (
	"fmt"
	"os"

	"github.com/carboy-sandbox/carboy/internal/egress"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/role"
)

func main() {
	role.Become(egress.Roles())
	fmt.Fprintln(os.Stderr, "carboy-gate:", order.ErrNone)
	os.Exit(2)
}
