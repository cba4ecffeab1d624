package boxservice_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// A platform gives each chat a sandbox of its own, and has its agents run
// commands there.
func ExampleService() {
	ctx := context.Background()
	s, err := boxservice.NewService(boxservice.Config{
		Connect: boxservice.Options{Endpoint: "ws://127.0.0.1:5410"}, // without: a child process is the runtime
		Profile: "network_basic",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	s.Open(ctx)

	q := boxservice.Query{ID: "42", LauncherType: "group", LauncherID: "room-1", SenderID: "alice"}
	r, err := s.ExecuteTool(ctx, q, map[string]any{"command": "python3 -c 'print(6*7)'", "timeout_sec": 10})
	switch {
	case errors.Is(err, boxservice.ErrUnavailable):
		fmt.Println("no sandbox for now:", s.Status(ctx).ConnectorError)
	case err != nil:
		fmt.Println(boxservice.Class(err), err)
	default:
		fmt.Println(r.SessionID, r.OK, r.Stdout)
	}
}

// A program without agents of its own speaks to the runtime itself, and to a
// process that a session keeps.
func ExampleClient_Attach() {
	ctx := context.Background()
	conn, err := boxservice.NewConnector(boxservice.Options{Endpoint: "ws://127.0.0.1:5410"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Open(ctx); err != nil {
		log.Fatal(err)
	}
	c := conn.Client()

	spec := boxservice.NewSpec("mcp-shared", "")
	spec.Network, spec.Persistent = "on", true
	if _, err := c.Create(ctx, spec); err != nil {
		log.Fatal(err)
	}
	if _, err := c.StartProcess(ctx, spec.SessionID, boxservice.ProcessSpec{ProcessID: "time", Command: "uvx", Args: []string{"mcp-server-time"}}); err != nil {
		log.Fatal(err)
	}
	a, err := c.Attach(ctx, spec.SessionID, "time")
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	if err := a.WriteLine(ctx, []byte(`{"jsonrpc": "2.0", "id": 1, "method": "ping"}`)); err != nil {
		log.Fatal(err)
	}
	line, err := a.ReadLine(ctx)
	fmt.Println(string(line), err)
}
