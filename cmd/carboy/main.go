// A call is over before its share of the processors matters, and to look it up in control
// groups takes a while.

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command carboy gives an AI agent a machine of its own. It is the command line, and
// carries the programs that it needs inside: the daemon, and what the daemon executes.
package main

import (
	"context"
	"os"

	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

func main() {
	role.Become(jail.Roles()) // what the command line executes itself as
	weak.Announce()
	os.Exit(cli.Main(context.Background(), os.Args[1:], environment()))
}
