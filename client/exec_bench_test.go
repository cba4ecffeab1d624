package client_test

import (
	"context"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// BenchmarkExec is what client, daemon and proxy add to a command that takes
// no time at all.
func BenchmarkExec(b *testing.B) {
	g := servertest.NewGuest()
	g.Programs["true"] = func(context.Context, *servertest.Process) *guestv1.Exit { return exited }
	d := servertest.New(b, g, server.Options{})
	c, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		b.Fatal(err)
	}
	sb, err := c.Create(b.Context(), api.CreateRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.Exec(b.Context(), sb.ID, client.ExecOptions{Command: command("true")}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExecOutput is the output of one command, through all of them.
func BenchmarkExecOutput(b *testing.B) {
	const size = 16 << 20
	g := servertest.NewGuest()
	text := string(make([]byte, size))
	g.Programs["print"] = func(_ context.Context, p *servertest.Process) *guestv1.Exit {
		p.Print("%s", text)
		return exited
	}
	d := servertest.New(b, g, server.Options{})
	c, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		b.Fatal(err)
	}
	sb, err := c.Create(b.Context(), api.CreateRequest{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		if _, err := c.Exec(b.Context(), sb.ID, client.ExecOptions{Command: command("print")}); err != nil {
			b.Fatal(err)
		}
	}
}
