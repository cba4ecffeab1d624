// Package internet is an internet of a test's own: a network namespace with public
// addresses, a resolver with a zone, and servers under names that its own root signs
// for.
//
// The machine's network can't be reached from it, nor it from there. It needs root.
package internet

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of an internet: public ones, as far as anybody in it can tell.
const (
	Resolver = "93.184.216.53"
	A        = "93.184.216.34"
	B        = "93.184.216.35"
	C        = "93.184.216.36"
	A6       = "2606:2800:220:1::34"
	Private  = "10.77.0.1" // what is said, but for this one
)

// Internet is safe for use by several goroutines.
type Internet struct {
	root
	do chan func()

	mu        sync.Mutex
	zone      map[string][]string // name, with a dot at its end, to addresses and other names
	questions []Question
	closers   []func()
}

// Question is what the resolver was asked.
type Question struct {
	Type string // A
	Name string // in lower case, with a dot at its end
	Has  bool   // whether there was such a name
}

// New makes one, in which there is nothing yet but a resolver. Close ends it.
func New() (*Internet, error) {
	n := &Internet{do: make(chan func()), zone: map[string][]string{}}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		made <- makeNetwork()
		for f := range n.do {
			f()
		}
	}()
	if err := <-made; err != nil {
		close(n.do)
		return nil, err
	}
	if err := errors.Join(n.make(), n.serveNames()); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func makeNetwork() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, a := range []string{Resolver + "/32", A + "/32", B + "/32", C + "/32", Private + "/32", A6 + "/128"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the servers and then the network.
func (n *Internet) Close() {
	n.mu.Lock()
	closers := n.closers
	n.mu.Unlock()
	for _, f := range closers {
		f()
	}
	close(n.do)
}

func (n *Internet) onClose(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closers = append(n.closers, f)
}

// In runs f in the network, on a thread that is in it.
func (n *Internet) In(f func()) {
	done := make(chan struct{})
	n.do <- func() { f(); close(done) }
	<-done
}

// Start starts a command there.
func (n *Internet) Start(c *exec.Cmd) (err error) {
	n.In(func() { err = c.Start() })
	return err
}

// Listen listens there, for streams.
func (n *Internet) Listen(address string) (l net.Listener, err error) {
	n.In(func() { l, err = net.Listen("tcp", address) })
	if err == nil {
		n.onClose(func() { _ = l.Close() }) // who serves has closed it before, or nobody does
	}
	return l, err
}

// Serve serves names at an address, on port 443 and in clear on 80. Whichever host a
// request names is the handler's to look at.
func (n *Internet) Serve(address string, h http.Handler, names ...string) error {
	cert, err := n.Certificate(nil, names...)
	if err != nil {
		return err
	}
	l80, err := n.Listen(net.JoinHostPort(address, "80"))
	if err != nil {
		return err
	}
	l443, err := n.Listen(net.JoinHostPort(address, "443"))
	if err != nil {
		return err
	}
	for _, name := range names {
		n.Resolve(name, address)
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	clear := &http.Server{Handler: h, ErrorLog: quiet}
	encrypted := &http.Server{Handler: h, ErrorLog: quiet, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
	go clear.Serve(l80)                 // it ends with Close
	go encrypted.ServeTLS(l443, "", "") // likewise
	n.onClose(func() { _ = errors.Join(clear.Close(), encrypted.Close()) })
	return nil
}

// ByHost passes a request on to the one of its host.
func ByHost(sites map[string]http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := sites[strings.TrimSuffix(r.Host, ":443")]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.Error(w, "no such site", http.StatusMisdirectedRequest)
	})
}

// Resolve gives a name addresses, or other names, which replace those that it had.
func (n *Internet) Resolve(name string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zone[dns.Fqdn(name)] = addrs
}

// Asked are the questions that the resolver received.
func (n *Internet) Asked() []Question {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Question(nil), n.questions...)
}

func (n *Internet) serveNames() error {
	var pc net.PacketConn
	var err error
	n.In(func() { pc, err = net.ListenPacket("udp", Resolver+":53") })
	if err != nil {
		return err
	}
	server := &dns.Server{PacketConn: pc, Handler: n}
	go server.ActivateAndServe() // it ends with Close
	n.onClose(func() { _ = pc.Close() })
	return nil
}

// ServeDNS answers as the resolver does.
func (n *Internet) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	for _, one := range q.Question {
		name := strings.ToLower(one.Name)
		addrs, has := n.zone[name]
		n.questions = append(n.questions, Question{dns.TypeToString[one.Qtype], name, has})
		if !has {
			m.Rcode = dns.RcodeNameError
			continue
		}
		for _, a := range addrs {
			head := dns.RR_Header{Name: one.Name, Class: dns.ClassINET, Ttl: 60}
			ip := net.ParseIP(a)
			switch {
			case ip == nil:
				head.Rrtype = dns.TypeCNAME
				m.Answer = append(m.Answer, &dns.CNAME{Hdr: head, Target: dns.Fqdn(a)})
			case ip.To4() != nil && one.Qtype == dns.TypeA:
				head.Rrtype = dns.TypeA
				m.Answer = append(m.Answer, &dns.A{Hdr: head, A: ip})
			case ip.To4() == nil && one.Qtype == dns.TypeAAAA:
				head.Rrtype = dns.TypeAAAA
				m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: ip})
			}
		}
	}
	_ = w.WriteMsg(m) // who asked may be gone
}
