package guest

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/asked"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/probe"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/guest/trust"
)

const (
	maxRoots  = 8 << 20 // bytes
	probeUser = 1000    // whose rights a probe has: those of any command that is not root's
)

// connection is the work of connecting the guest, which goes on while the
// agent starts. Commands wait for it.
type connection struct {
	mu       sync.Mutex
	done     chan struct{}
	resolver *asked.Resolver // nil: there is a gate, or it could not listen
}

// prepare makes what commands are only shown if it is there when their jail is
// made.
func (c *connection) prepare(n *api.Network) {
	c.done = make(chan struct{})
	if n == nil {
		return
	}
	for _, dir := range []string{"/etc", "/usr"} {
		_ = unix.Mkdir(dir, 0o755) // it is there, or what needs it will say so
	}
}

// begin connects the guest in the background.
func (a *agent) begin(n *api.Network) {
	go func() {
		defer close(a.connection.done)
		a.connect(n)
	}()
}

// hangUp ends what connecting began.
func (a *agent) hangUp() {
	<-a.connection.done
	a.connection.mu.Lock()
	defer a.connection.mu.Unlock()
	if r := a.connection.resolver; r != nil {
		_ = r.Close() // it only listened
	}
}

// connected is settings.defaults once the guest is connected.
func (a *agent) connected() process.Defaults {
	<-a.connection.done
	return a.settings.defaults()
}

// offline is what commands get where there is no network: clients that make a failed
// request again would do so for a minute, though nothing can come of it. As all that
// the agent sets by itself, it yields to what an image or a user says.
var offline = map[string]string{
	"npm_config_fetch_retries": "0", // npm, pnpm
	"YARN_HTTP_RETRY":          "0",
	"PIP_RETRIES":              "0",
	"UV_HTTP_RETRIES":          "0",
	"CARGO_NET_RETRY":          "0",
}

// disconnect has the guest know of no name, and remember those that it is asked for.
func (a *agent) disconnect() {
	if err := trust.NoNetwork("/"); err != nil {
		a.lack("names: a look-up may take its time: " + err.Error())
	}
	a.settings.setBase(offline)
	if a.connection.resolver != nil {
		return
	}
	var err error
	if a.connection.resolver, err = asked.Listen(); err != nil {
		a.connection.resolver = nil
		a.lack("names: what is asked for is not recorded: " + err.Error())
	}
}

// serveAsked tells which names were asked for in vain.
func (a *agent) serveAsked(w http.ResponseWriter, _ *http.Request) {
	<-a.connection.done
	a.connection.mu.Lock()
	r := a.connection.resolver
	a.connection.mu.Unlock()
	if r == nil {
		answer(w, api.AskedAnswer{})
		return
	}
	answer(w, r.Names())
}

// connect makes the guest use its gate, or look for no name where it has none.
// A checked network's addresses are addresses. What could not be done, the
// status says.
func (a *agent) connect(n *api.Network) {
	a.connection.mu.Lock()
	defer a.connection.mu.Unlock()
	if n == nil {
		a.disconnect()
		return
	}
	if r := a.connection.resolver; r != nil {
		_ = r.Close() // the gate answers now
		a.connection.resolver = nil
	}
	o := trust.Options{Gate: n.Gate, Authority: []byte(n.Trust), Env: a.settings.defaults().Env}
	for _, s := range n.Nameservers {
		o.Nameservers = append(o.Nameservers, netip.MustParseAddr(s))
	}
	if n.Roots != "" {
		o.Roots = func() ([]byte, error) { return readRoots(n.Roots) }
	}
	env, err := trust.Install(o)
	a.settings.setBase(env)
	if err != nil {
		a.lack(api.LackNetwork + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (a *agent) lack(what string) {
	a.log.Warn("agent", "lacks", what)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.lack(what)
}

func readRoots(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRoots+1))
	if err == nil && len(data) > maxRoots {
		err = errors.New("the file is too large")
	}
	return data, err
}

// probe tries what the host asks for, with the rights of a command.
func (a *agent) probe(w http.ResponseWriter, r *http.Request) {
	p, err := probe.Decode(http.MaxBytesReader(w, r.Body, probe.MaxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	found, err := probe.Run(p, func(f func()) error {
		return a.jail.Act(jail.User{UID: probeUser, GID: probeUser}, f)
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, found)
}
