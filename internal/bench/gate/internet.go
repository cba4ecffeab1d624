// Package gate is what the way through a gate is measured with: an internet of its
// own in a network namespace, with a resolver and servers; other proxies that
// intercept TLS; and the client, which is the same in every place.
//
// Nothing leaves the machine. It refuses nothing by itself: a process that makes an
// Internet is alone in new network and mount namespaces.
package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The internet's addresses, public ones as far as anything in it can tell, and its
// two names: one whose connections gates read, and one whose they pass on.
const (
	AddrDNS    = "93.184.216.53"
	addrRead   = "93.184.216.34"
	addrUnread = "93.184.216.35"
	NameRead   = "read.example"
	NameUnread = "unread.example"
)

// Internet is this process's network, what serves in it, and what was made.
type Internet struct {
	Dir     string
	Roots   string // a file: whom the servers are signed by
	Trusted string // a file: them, and whom this machine trusts
	undo    []func() error
}

// New makes the network that this process is alone in. What it needs lies in dir,
// which proxies read that give up being root.
func New(dir string) (_ *Internet, err error) {
	n := &Internet{Dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := n.names(); err != nil {
		return nil, err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, err
	}
	for _, a := range []string{AddrDNS, addrRead, addrUnread} {
		addr, err := netlink.ParseAddr(a + "/32")
		if err != nil {
			return nil, err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return nil, err
		}
	}
	if err := n.serveDNS(); err != nil {
		return nil, err
	}
	return n, n.serveHTTP()
}

func (n *Internet) later(f func() error) { n.undo = append(n.undo, f) }

// Close ends what serves.
func (n *Internet) Close() error {
	var errs []error
	for len(n.undo) > 0 {
		last := n.undo[len(n.undo)-1]
		n.undo = n.undo[:len(n.undo)-1]
		errs = append(errs, last())
	}
	return errors.Join(errs...)
}

// names tells this mount namespace the names, for proxies too that ask the system's
// library alone.
func (n *Internet) names() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	// Shared memory of a proxy that is killed would stay.
	if err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	for file, text := range map[string]string{
		"/etc/hosts":       fmt.Sprintf("127.0.0.1 localhost\n%s %s\n%s %s\n", addrRead, NameRead, addrUnread, NameUnread),
		"/etc/resolv.conf": "nameserver " + AddrDNS + "\n",
	} {
		ours := filepath.Join(n.Dir, filepath.Base(file))
		if err := os.WriteFile(ours, []byte(text), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(ours, file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", file, err)
		}
	}
	return nil
}

func (n *Internet) serveDNS() error {
	pc, err := net.ListenPacket("udp", AddrDNS+":53")
	if err != nil {
		return err
	}
	zone := map[string]string{dns.Fqdn(NameRead): addrRead, dns.Fqdn(NameUnread): addrUnread}
	server := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, one := range q.Question {
			a, ok := zone[strings.ToLower(one.Name)]
			if !ok {
				m.Rcode = dns.RcodeNameError
			} else if one.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: one.Name, Class: dns.ClassINET, Rrtype: dns.TypeA, Ttl: 3600}, A: net.ParseIP(a)})
			}
		}
		_ = rw.WriteMsg(m)
	})}
	go server.ActivateAndServe() //nolint:errcheck // it ends with its socket
	n.later(pc.Close)
	return nil
}

// signed is a certificate and its key, both also in PEM.
type signed struct {
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
	pem, priv []byte
}

// sign makes a certificate, signed by another or, where that is nil, itself.
func sign(by *signed, common string, names ...string) (*signed, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: common}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	} else {
		parent, signer = by.cert, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	s := &signed{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	s.priv = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	s.cert, err = x509.ParseCertificate(raw)
	return s, err
}

func (s *signed) forTLS() (tls.Certificate, error) { return tls.X509KeyPair(s.pem, s.priv) }
