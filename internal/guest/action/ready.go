package action

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

const (
	checkTime = 5 * time.Second // for one look at whether a service is ready
	maxHead   = 64 << 10        // bytes of the header of an answer to it
)

// check looks once whether a service is ready. Its error says what is missing.
type check func(ctx context.Context) error

// spec is what a service runs.
func (sh *shape) spec() process.Spec {
	return process.Spec{
		Argv: []string{shellProgram, "-c", sh.command}, Env: sh.env, Cwd: sh.cwd, Tag: "service:" + sh.name,
	}
}

// newID is an id of the engine's that nobody has.
func newID(kind string) string { return kind + "-" + rand.Text() }

// readiness makes a service's check, or says what is wrong with what was asked for.
func (s *Server) readiness(r *action.Readiness, a account.Account, sh *shape) (check, error) {
	if r == nil {
		return nil, nil
	}
	given := map[string]string{"file": r.Path, "tcp": r.Address, "http": r.URL, "command": r.Command}
	what, ok := given[r.Type]
	if !ok {
		return nil, fmt.Errorf("readiness of type %.16q: it has to be file, tcp, http or command", r.Type)
	}
	for kind, value := range given {
		if (value != "") != (kind == r.Type) {
			return nil, errors.New("readiness has to have the one field of its type: path for file, address for tcp, url for http, command for command")
		}
	}
	switch r.Type {
	case "file":
		return s.fileReady(what, a, sh.cwd)
	case "tcp":
		return tcpReady(what)
	case "http":
		return httpReady(what)
	}
	return s.commandReady(what, sh), nil
}

// fileReady waits for a path to be there, as commands see it.
func (s *Server) fileReady(name string, a account.Account, dir string) (check, error) {
	p, err := files.Resolve(name, a.Home, dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		err := s.opts.Files.Act(ctx, a, func() error {
			_, err := os.Stat(p)
			return err
		})
		return missing(p, err)
	}, nil
}

// commandReady waits for a command to end with 0.
func (s *Server) commandReady(command string, sh *shape) check {
	return func(ctx context.Context) error {
		if !s.opts.Wait(ctx) {
			return context.Cause(ctx)
		}
		spec := sh.spec()
		spec.Argv, spec.Timeout = []string{shellProgram, "-c", command}, 2*checkTime
		cmd, err := s.opts.Engine.Start(newID("ready"), spec)
		if err != nil {
			return err
		}
		select {
		case <-cmd.Done():
		case <-ctx.Done():
		}
		_ = cmd.Signal(unix.SIGKILL, true, by) // and what it has left behind; there may be nothing
		<-cmd.Done()
		exit, _ := cmd.Exit()
		if exit.Reason == process.NotStarted {
			return errors.New(exit.Error)
		}
		if exit.Code != 0 {
			return fmt.Errorf("the command that tells ended with: %v", exit)
		}
		return nil
	}
}

// tcpReady waits for a port of the sandbox's to accept a connection.
func tcpReady(address string) (check, error) {
	if _, err := strconv.ParseUint(address, 10, 16); err == nil {
		address = net.JoinHostPort("localhost", address)
	}
	if _, err := hostOf(address); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		c, err := dialSelf(ctx, address)
		if err != nil {
			return err
		}
		return c.Close()
	}, nil
}

// httpReady waits for a server of the sandbox's to answer as one that is well. No
// redirect is followed.
func httpReady(text string) (check, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("url %.128q: it has to be http://HOST:PORT/PATH", text)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	if _, err := hostOf(u.Host); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		client := &http.Client{
			Timeout:       checkTime,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
					return dialSelf(ctx, address)
				},
				DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHead,
			},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode < 200 || resp.StatusCode > 399 {
			return fmt.Errorf("%s answers with %d", u, resp.StatusCode)
		}
		return nil
	}, nil
}

// hostOf reads HOST:PORT. The host is localhost, which is none here, or an address.
func hostOf(address string) (host netip.Addr, err error) {
	name, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 {
		return host, fmt.Errorf("address %.128q: it has to be PORT or HOST:PORT", address)
	}
	if name == "localhost" {
		return host, nil
	}
	if host, err = netip.ParseAddr(name); err != nil {
		return host, fmt.Errorf("host %.128q: it has to be localhost or an address of the sandbox's own", name)
	}
	return host.Unmap(), nil
}

// dialSelf connects to the sandbox itself, and to nothing else: the agent asks no gate.
func dialSelf(ctx context.Context, address string) (net.Conn, error) {
	host, err := hostOf(address)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address) // hostOf has done so
	dialer := net.Dialer{Timeout: checkTime}
	if !host.IsValid() {
		c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if errors.Is(err, unix.ECONNREFUSED) { // localhost may mean the other alone
			if six, serr := dialer.DialContext(ctx, "tcp", net.JoinHostPort("::1", port)); serr == nil {
				return six, nil
			}
		}
		return c, err
	}
	if !host.IsLoopback() && !own(host) {
		return nil, fmt.Errorf("%s is no address of the sandbox", host)
	}
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort(host.String(), port))
}

// own reports whether one of the sandbox's interfaces has an address.
func own(host netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == host {
			return true
		}
	}
	return false
}
