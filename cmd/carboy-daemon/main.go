// Command carboy-daemon is carboy's daemon, and every role without gVisor's kernel in
// which it executes itself again. Carboy carries it inside, and executes it: by hand it
// does nothing.
package main

import (
	"fmt"
	"os"

	"github.com/carboy-sandbox/carboy/internal/program/order"
)

func main() {
	become()
	fmt.Fprintln(os.Stderr, "carboy-daemon:", order.ErrNone)
	os.Exit(2)
}
