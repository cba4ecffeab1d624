package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/bench/gate"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Names by which the program that measures runs itself again.
const (
	roleInternet = "carboy-bench-internet"
	roleLoad     = "carboy-bench-load"
)

// Roles are what a measuring of gates runs beside itself: all of it, in an
// internet of its own, and the client, which runs in sandboxes too.
func Roles() role.Table {
	return role.Table{
		roleInternet: internetMain,
		roleLoad:     func() error { return gate.Load(os.Args[1:], os.Stdout) },
	}
}

// GateOptions say what is measured of the way through a gate.
type GateOptions struct {
	Carboy, Version string   // as in Options
	Rounds          int      // 0: 10, or 3 where Quick is set
	Quick           bool     // small amounts, for a look
	Only            []string // groups, cases, or GROUP/CASE; none: all
	Squid           string   // what the unpacked package lies below; "": not measured
	Mitmproxy       string   // as Squid
}

// gateRounds is how often transfers are measured: each takes seconds.
const gateRounds = 10

// RunGate measures what the way through a sandbox's gate costs, beside the plain
// way and other proxies that intercept TLS. It needs root, and refuses to measure
// without. It makes an internet of its own in a network namespace: nothing leaves
// the machine. What is going on goes to progress. Like Run, it has in the report
// what was measured until ctx ended.
func RunGate(ctx context.Context, o GateOptions, progress io.Writer) (*Report, error) {
	if os.Getuid() != 0 {
		return nil, sandbox.Errorf(sandbox.Denied, "bench gate: it needs root, for a network namespace")
	}
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Args[0] = roleInternet
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(order), &out, progress
	// The signal is the child's, which takes away what it made.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	err = cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var rep Report
	if derr := json.Unmarshal(out.Bytes(), &rep); derr != nil {
		return nil, errors.Join(err, derr)
	}
	return &rep, err
}

// internetMain is the role that is alone in its network.
func internetMain() error {
	var o GateOptions
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	if o.Rounds == 0 && !o.Quick {
		o.Rounds = gateRounds
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	rep, err := Run(ctx, Options{
		Carboy: o.Carboy, Version: o.Version, Rounds: o.Rounds, Quick: o.Quick, Only: o.Only, gate: &o,
		Progress: func(format string, args ...any) { fmt.Fprintf(os.Stderr, "carboy: "+format+"\n", args...) },
	})
	if rep == nil {
		return err
	}
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(rep))
}

// shown is where sandboxes see the client, and whom to trust.
const shown = "/bench"

// way is a way from the client to the server, and what is between them.
type way struct {
	name    string
	against []string
	args    []string // of the client
	pid     int      // of what is between; 0: nothing is
	run     func(ctx context.Context, out io.Writer, args ...string) error
}

// gated is a run about gates.
type gated struct {
	w    *world
	d    *daemon
	net  *gate.Internet
	ways map[string]*way // that are open
}

// plan puts together what is measured of the way through a gate.
func (o *GateOptions) plan(w *world) *plan {
	g := &gated{w: w, ways: map[string]*way{}}
	p := &plan{owner: map[string]string{}}
	ours := peer{
		name: "carboy", available: func(context.Context) (bool, string) { return true, w.carboy }, open: g.openOurs,
	}
	p.peers = []peer{ours}
	names := []way{{name: "direct"}}
	for _, wall := range walls {
		names = append(names,
			way{name: wall.name + "-unread", against: []string{"direct"}},
			way{name: wall.name + "-read", against: []string{wall.name + "-unread", "direct"}},
			way{name: wall.name + "-read-h2", against: []string{wall.name + "-read", "direct-h2"}})
	}
	names = append(names, way{name: "direct-h2"})
	for _, n := range names {
		p.owner[n.name] = ours.name
	}
	for _, proxy := range []struct {
		name, dir string
		version   func(dir string) string
		start     func(*gate.Internet, context.Context, string) (*gate.Proxy, error)
	}{
		{"squid", o.Squid, gate.SquidVersion, (*gate.Internet).Squid},
		{"mitmproxy", o.Mitmproxy, gate.MitmproxyVersion, (*gate.Internet).Mitmproxy},
	} {
		names = append(names, way{name: proxy.name, against: []string{"direct"}})
		p.owner[proxy.name] = proxy.name
		p.peers = append(p.peers, peer{
			name: proxy.name,
			available: func(context.Context) (bool, string) {
				if proxy.dir == "" {
					return false, "scripts/bench-gate.sh brings it"
				}
				return true, proxy.version(proxy.dir)
			},
			open: func(ctx context.Context) error {
				n, err := g.internet()
				if err != nil {
					return err
				}
				x, err := proxy.start(n, ctx, proxy.dir)
				if err != nil {
					return err
				}
				g.ways[proxy.name] = &way{pid: x.PID, args: []string{"-proxy", x.URL, "-ca", x.CA}, run: g.onHost}
				return nil
			},
		})
	}
	p.groups = g.groups(names)
	for _, group := range p.groups {
		for _, c := range group.cases {
			if p.owner[c.name] == "" {
				p.owner[c.name] = ours.name
			}
		}
	}
	return p
}

// internet is the run's.
func (g *gated) internet() (*gate.Internet, error) {
	return once(g.w, "internet", func() (*gate.Internet, error) {
		n, err := gate.New(g.w.dir)
		if err == nil {
			g.w.later("the internet", func(context.Context) error { return n.Close() })
		}
		return n, err
	})
}

// openOurs starts the daemon, and makes sandboxes whose requests are read and
// whose are not.
func (g *gated) openOurs(ctx context.Context) (err error) {
	if g.net, err = g.internet(); err != nil {
		return err
	}
	if err := g.show(); err != nil {
		return err
	}
	g.d, err = g.w.startDaemon(ctx, daemonSetup{
		name:   "gated",
		env:    []string{"HOME=" + g.w.dir, "SSL_CERT_FILE=" + g.net.Trusted, "SSL_CERT_DIR=/nonexistent"},
		config: map[string]any{"mount_dirs": []string{g.dir()}, "resolvers": []string{gate.AddrDNS + ":53"}},
	})
	if err != nil {
		return err
	}
	g.ways["direct"] = &way{args: []string{"-ca", g.net.Roots}, run: g.onHost}
	g.ways["direct-h2"] = &way{args: []string{"-h2", "-ca", g.net.Roots}, run: g.onHost}
	for _, wall := range walls {
		id, err := g.create(ctx, wall.name, true)
		if err != nil {
			return err
		}
		pid, err := gateOf(id)
		if err != nil {
			return err
		}
		inside := func(ctx context.Context, out io.Writer, args ...string) error {
			return g.inside(ctx, id, nil, out, args...)
		}
		g.ways[wall.name+"-unread"] = &way{pid: pid, args: unreadArgs(), run: inside}
		g.ways[wall.name+"-read"] = &way{pid: pid, run: inside}
		g.ways[wall.name+"-read-h2"] = &way{pid: pid, args: []string{"-h2"}, run: inside}
	}
	return nil
}

// dir is what sandboxes see at shown.
func (g *gated) dir() string { return filepath.Join(g.w.dir, "shown") }

// show puts into it what they need.
func (g *gated) show() error {
	if err := os.Mkdir(g.dir(), 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for from, to := range map[string]string{self: roleLoad, g.net.Roots: "roots.pem"} {
		raw, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(g.dir(), to), raw, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// unreadArgs have a client inside ask the host that is passed on unread.
func unreadArgs() []string {
	return []string{"-host", gate.NameUnread, "-ca", shown + "/roots.pem"}
}

// create makes a sandbox, with a network or without: of two hosts one is read.
func (g *gated) create(ctx context.Context, wall string, network bool) (string, error) {
	req := api.CreateRequest{Isolation: wall, Mounts: []api.Mount{{Source: g.dir(), Target: shown, ReadOnly: true}}}
	if network {
		req.Policy = &api.Policy{Rules: []api.PolicyRule{
			{ID: "read", Hosts: []string{gate.NameRead}},
			{ID: "unread", Hosts: []string{gate.NameUnread}, Protocol: "tls"},
		}}
	}
	id, err := g.d.create(ctx, req)
	if err != nil {
		return "", fmt.Errorf("create %s: %w%s", wall, err, g.d.said())
	}
	return id, nil
}

// inside runs the client in a sandbox.
func (g *gated) inside(ctx context.Context, id string, in io.Reader, out io.Writer, args ...string) error {
	var errs tail
	exit, err := g.d.by.Exec(ctx, id, client.ExecOptions{
		// The whole of argv[0] is the role's name, so it is found by PATH.
		Command: &guestv1.Command{Argv: append([]string{roleLoad}, args...), Env: map[string]string{"PATH": shown}},
		Stdin:   in, Stdout: out, Stderr: &errs,
	})
	if err == nil && exit.GetCode() != 0 {
		err = fmt.Errorf("exit code %d%s", exit.GetCode(), &errs)
	}
	return err
}

// onHost runs the client beside the server.
func (g *gated) onHost(ctx context.Context, out io.Writer, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o, err := g.w.run(ctx, command{argv: append([]string{self}, args...), argv0: roleLoad})
	if err == nil {
		_, err = out.Write(o.out)
	}
	return err
}

// do has the client do something, and tells what it saw, and the processor time of
// what was between it and the server.
func (p *way) do(ctx context.Context, what string, n int) (l gate.Loaded, between time.Duration, err error) {
	before, err := p.cpu()
	if err != nil {
		return l, 0, err
	}
	var out bytes.Buffer
	if err := p.run(ctx, &out, append([]string{"-do", what, "-n", strconv.Itoa(n)}, p.args...)...); err != nil {
		return l, 0, fmt.Errorf("%s: %w", what, err)
	}
	after, err := p.cpu()
	if err != nil {
		return l, 0, err
	}
	return l, after - before, json.Unmarshal(out.Bytes(), &l)
}

func (p *way) cpu() (time.Duration, error) {
	if p.pid == 0 {
		return 0, nil
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, err
	}
	own, err := parseProcess(line)
	return own.own, err
}

// gateOf finds the process of a sandbox's gate.
func gateOf(id string) (int, error) {
	all, err := readProcesses()
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if err == nil && strings.HasPrefix(string(line), "carboy-gate\x00") && strings.Contains(string(line), id) {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("sandbox %s has no gate", id)
}
