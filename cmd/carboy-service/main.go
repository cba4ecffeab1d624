// Command carboy-service is what the daemon puts into sandboxes of its own
// templates: by the name carboy-code-interpreter it runs code, by the name
// mcp-gateway it passes calls on to MCP servers. It is nothing on the host.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter"
	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch filepath.Base(os.Args[0]) {
	case "carboy-code-interpreter":
		os.Exit(interpreter.Main(ctx, os.Args[1:], os.Stderr))
	case "mcp-gateway":
		os.Exit(mcpgateway.Main(ctx, os.Args[1:], os.Stderr))
	}
	fmt.Fprintln(os.Stderr, "carboy-service: no service has this name")
	os.Exit(2)
}
