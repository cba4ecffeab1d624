// Command carboy gives an AI agent a machine of its own. It is the command
// line, the daemon, and every role in which a wall executes it again.
package main

import (
	"context"
	"os"

	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

func main() {
	become()
	weak.Announce()
	os.Exit(cli.Main(context.Background(), os.Args[1:], environment()))
}
