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
	mu   sync.Mutex
	done chan struct{}
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

// connected is settings.defaults once the guest is connected.
func (a *agent) connected() process.Defaults {
	<-a.connection.done
	return a.settings.defaults()
}

// connect makes the guest use its gate, or look for no name where it has none.
// A checked network's addresses are addresses. What could not be done, the
// status says.
func (a *agent) connect(n *api.Network) {
	a.connection.mu.Lock()
	defer a.connection.mu.Unlock()
	if n == nil {
		if err := trust.NoNameServer("/", a.cfg.Furnish); err != nil {
			a.lack("names: a look-up may take its time: " + err.Error())
		}
		return
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
		a.lack("network: " + strings.ReplaceAll(err.Error(), "\n", "; "))
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
