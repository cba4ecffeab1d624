package e2e

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// worldOwn is a public address of the machine's own, on a network of its.
const worldOwn = "93.184.216.99"

// ownAddress gives the machine of the world an interface with worldOwn.
func (w *world) ownAddress() {
	w.t.Helper()
	var err error
	w.in(func() {
		link := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, Mode: netlink.TUNTAP_MODE_TAP}
		addr, parseErr := netlink.ParseAddr(worldOwn + "/24")
		if err = errors.Join(netlink.LinkAdd(link), parseErr); err != nil {
			return
		}
		addr.Flags = unix.IFA_F_NOPREFIXROUTE
		err = errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// A name that leads to the machine's own public address does not open what
// listens there, which no firewall in front of the machine would see. A rule
// that has the address does.
func TestMachinesOwnAddress(t *testing.T) {
	t.Parallel()
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			w := newWorld(t)
			w.ownAddress()
			w.https("www.example.com", worldA, nil)
			w.https("own.example.com", worldOwn, nil)
			admin := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = rw.Write([]byte("the admin's\n"))
			})}
			l := w.listen(net.JoinHostPort(worldOwn, "8080"))
			go admin.Serve(l) // it ends with the test
			t.Cleanup(func() { admin.Close() })
			h := w.home()
			for _, tt := range []struct {
				name string
				args []string
				open bool
			}{
				{"on", []string{"--network", "on"}, false},
				{"by-name", []string{"--allow", "www.example.com", "--allow", "own.example.com", "--allow", "own.example.com:8080"}, false},
				{"by-address", []string{"--network", "on", "--allow", worldOwn, "--allow", worldOwn + ":8080"}, true},
			} {
				t.Run(tt.name, func(t *testing.T) {
					name := h.create(append([]string{"--isolation", wall}, tt.args...)...)
					if out := h.ok("exec", name, "--", "curl", "-sSk", "https://www.example.com/"); out != "hello from www.example.com\n" {
						t.Errorf("another's address: %q", out)
					}
					for url, says := range map[string]string{
						"https://own.example.com/":                                         "hello from own",
						"http://own.example.com:8080/":                                     "the admin's",
						"-x http://gate.carboy.internal:3128 http://own.example.com:8080/": "the admin's",
					} {
						r := h.run(nil, append([]string{"exec", name, "--", "curl", "-sSk", "-m", "60"}, strings.Fields(url)...)...)
						if strings.Contains(r.stdout, says) != tt.open {
							t.Errorf("%s: %q %q", url, r.stdout, r.stderr)
						}
						if !tt.open && strings.HasPrefix(url, "https") && !strings.Contains(r.stdout, "this machine's own") {
							t.Errorf("%s: refused without a reason: %q", url, r.stdout)
						}
					}
				})
			}
		})
	}
}
