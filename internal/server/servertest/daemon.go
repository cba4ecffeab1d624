package servertest

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// Version is the version that the daemon reports.
const Version = "v0-test"

// Daemon is a server on a unix socket and, where keys are given, on a
// loopback port, around a make-believe wall. What it manages outlives it.
type Daemon struct {
	Socket  string
	URL     string // of the loopback port; "" without keys
	Guest   *Guest
	Wall    *sandboxtest.Fake
	Kept    *sandboxtest.Snapshots
	Manager *sandbox.Manager
	Server  *server.Server
	Store   *Records
	Options server.Options // for the next start
	E2B     e2b.Options    // likewise
	// Setup fills in what needs the Manager; nil: there is nothing.
	Setup func(m *sandbox.Manager, o *server.Options, d *e2b.Options)

	Shutdowns chan struct{} // one for each POST /v1/shutdown

	t    testing.TB
	mu   sync.Mutex // one Start or Kill at a time
	addr string
	kill func()
}

// New starts a daemon that ends with the test.
func New(t testing.TB, guest *Guest, o server.Options) *Daemon {
	t.Helper()
	return NewWith(t, guest, o, nil)
}

// NewWith is New, with a Setup.
func NewWith(t testing.TB, guest *Guest, o server.Options, setup func(*sandbox.Manager, *server.Options, *e2b.Options)) *Daemon {
	t.Helper()
	d := &Daemon{
		Socket: filepath.Join(t.TempDir(), "carboy.sock"), Guest: guest,
		Wall: sandboxtest.New("gvisor"), Kept: sandboxtest.NewSnapshots(), Store: &Records{}, Options: o, Setup: setup,
		Shutdowns: make(chan struct{}, 16), t: t, addr: "127.0.0.1:0",
	}
	d.Wall.SetServer(guest.Serve)
	d.Start()
	t.Cleanup(func() {
		d.Kill()
		guest.Die()
		d.Wall.Close()
	})
	return d
}

// Start starts the daemon anew on what the last one left.
func (d *Daemon) Start() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	opts := sandbox.Options{Store: d.Store, Backends: []sandbox.Backend{d.Wall}, Snapshots: d.Kept, CPUs: 4}
	if d.Options.Book != nil {
		opts.Quotas = d.Options.Book
	}
	m, err := sandbox.NewManager(opts)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := m.Adopt(ctx); err != nil {
		d.t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	o := d.Options
	o.Manager, o.Version = m, Version
	o.Shutdown = func() { d.Shutdowns <- struct{}{} }
	o.Status = func(context.Context) (api.Status, error) { return api.Status{Version: Version}, nil }
	dialect := d.E2B
	if d.Setup != nil {
		d.Setup(m, &o, &dialect)
	}
	dialect.Manager, dialect.Domain, dialect.PublicTraffic, dialect.Log = m, o.Domain, o.PublicTraffic, o.Log
	dialect.Teams.Tenants = o.Tenants
	if o.Secrets != nil {
		dialect.Teams.Values = o.Secrets
	}
	o.Dialect = e2b.New(dialect)
	s := server.New(o)
	ul, err := net.Listen("unix", d.Socket)
	if err != nil {
		d.t.Fatal(err)
	}
	served := []func(){serve(s.Unix(ctx), ul)}
	if o.Keys != nil {
		tl, err := net.Listen("tcp", d.addr)
		if err != nil {
			d.t.Fatal(err)
		}
		d.addr = tl.Addr().String()
		d.URL = "http://" + d.addr
		served = append(served, serve(s.TCP(ctx), tl))
	}
	d.Manager, d.Server = m, s
	d.kill = func() {
		for _, end := range served {
			end()
		}
		cancel()
		m.Close()
		<-ran
		s.Close()
	}
}

func serve(srv *http.Server, l net.Listener) (end func()) {
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	return func() {
		_ = srv.Close()
		<-done
	}
}

// Kill breaks every connection at once and ends the daemon. Instances go on.
func (d *Daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kill != nil {
		d.kill()
	}
	d.kill = nil
}

// Restart kills the daemon and starts another.
func (d *Daemon) Restart() {
	d.t.Helper()
	d.Kill()
	d.Start()
}

// Wait waits until ok, and fails the test where that takes too long. It is
// for facts that nothing announces.
func Wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited too long for: %s", what)
		}
	}
}
