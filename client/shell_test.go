package client_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// Each method asks the sandbox's agent what it says; a read of a shell is made again where
// the daemon went away in the middle of it, and what is typed is not.
func TestShellsAndServices(t *testing.T) {
	g := servertest.NewGuest()
	asked := make(chan string, 4)
	var d *servertest.Daemon
	var kill atomic.Bool
	g.Actions = func(line []byte) string {
		asked <- strings.TrimSpace(string(line))
		if kill.CompareAndSwap(true, false) {
			d.Kill()
		}
		return `{"shell_id":"s","service_name":"w","shells":[{"shell_id":"s"}],"services":[{"service_name":"w"}],"closed":true}`
	}
	d = servertest.New(t, g, server.Options{})
	var redialled atomic.Int32
	c, err := client.New(client.Options{Socket: d.Socket, Redial: func(context.Context) error {
		redialled.Add(1)
		d.Start()
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Create(t.Context(), api.CreateRequest{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	read := action.ReadShellRequest{ShellID: "s", Cursor: 7, MaxChars: 8, Plain: true, WaitForIdleMS: 9, WaitMS: 10}
	for _, tt := range []struct {
		want string
		do   func() error
	}{
		{`{"action":"open_shell","shell_id":"s","cwd":"/","cols":1,"rows":2}`, func() error {
			_, err := c.OpenShell(ctx, "web", action.OpenShellRequest{Action: "x", ShellID: "s", CWD: "/", Cols: 1, Rows: 2})
			return err
		}},
		{`{"action":"list_shells"}`, func() error { _, err := c.Shells(ctx, "web"); return err }},
		{`{"action":"status_shell","shell_id":"s"}`, func() error { _, err := c.Shell(ctx, "web", "s"); return err }},
		{
			`{"action":"read_shell","shell_id":"s","cursor":7,"max_chars":8,"plain":true,"wait_for_idle_ms":9,"wait_ms":10}`,
			func() error { _, err := c.ReadShell(ctx, "web", read); return err },
		},
		{`{"action":"read_shell","shell_id":"s","cursor":0,"max_chars":65536,"encoding":"base64"}`, func() error {
			_, err := c.ReadShell(ctx, "web", action.ReadShellRequest{ShellID: "s", Encoding: "base64"})
			return err
		}},
		{`{"action":"write_shell","shell_id":"s","input":"x","append_newline":true}`, func() error {
			_, err := c.WriteShell(ctx, "web", action.WriteShellRequest{ShellID: "s", Input: "x", AppendNewline: true})
			return err
		}},
		{`{"action":"signal_shell","shell_id":"s","signal":"INT"}`, func() error { _, err := c.SignalShell(ctx, "web", "s", "INT"); return err }},
		{`{"action":"resize_shell","shell_id":"s","cols":3,"rows":4}`, func() error { _, err := c.ResizeShell(ctx, "web", "s", 3, 4); return err }},
		{`{"action":"close_shell","shell_id":"s"}`, func() error { _, err := c.CloseShell(ctx, "web", "s"); return err }},
		{`{"action":"start_service","service_name":"w","command":"x"}`, func() error {
			_, err := c.StartService(ctx, "web", action.StartServiceRequest{ServiceName: "w", Command: "x"})
			return err
		}},
		{`{"action":"list_services"}`, func() error { _, err := c.Services(ctx, "web"); return err }},
		{`{"action":"status_service","service_name":"w"}`, func() error { _, err := c.Service(ctx, "web", "w"); return err }},
		{`{"action":"logs_service","service_name":"w","tail_lines":5}`, func() error { _, err := c.ServiceLogs(ctx, "web", "w", 5); return err }},
		{`{"action":"stop_service","service_name":"w"}`, func() error { _, err := c.StopService(ctx, "web", "w"); return err }},
	} {
		if err := tt.do(); err != nil {
			t.Errorf("%s: %v", tt.want, err)
		}
		if got := <-asked; got != tt.want {
			t.Errorf("the guest was asked %s, want %s", got, tt.want)
		}
	}
	kill.Store(true)
	if got, err := c.ReadShell(ctx, "web", read); err != nil || got.ShellID != "s" || redialled.Load() != 1 {
		t.Errorf("over a kill: %+v, %v; looked for a daemon %d times", got, err, redialled.Load())
	}
	if one, two := <-asked, <-asked; one != two {
		t.Errorf("the guest was asked %s, and then %s", one, two)
	}
	kill.Store(true)
	if _, err := c.WriteShell(ctx, "web", action.WriteShellRequest{ShellID: "s", Input: "x"}); client.KindOf(err) != client.Unavailable {
		t.Errorf("typed over a kill: %v", err)
	}
	if <-asked; len(asked) != 0 {
		t.Error("what was typed was typed again")
	}
	// No daemon is there by now: nothing was sent to it.
	if _, err := c.WriteShell(ctx, "web", action.WriteShellRequest{ShellID: "s", Input: "y"}); err != nil || redialled.Load() != 2 || len(asked) != 1 {
		t.Errorf("typed without a daemon: %v; looked for one %d times, typed %d times", err, redialled.Load(), len(asked))
	}
}
