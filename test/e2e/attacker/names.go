package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func init() {
	attempts["domain-fronting"] = fronting
	attempts["host-swap"] = hostSwap
	attempts["h2-authority"] = authority
	attempts["connect-relay"] = connectRelay
	attempts["tunnel-swap"] = tunnelSwap
	attempts["absolute-form"] = absoluteForm
	attempts["trailing-dots"] = trailingDots
	attempts["case-and-idn"] = caseAndIDN
	attempts["hidden-hello"] = hiddenHello
}

// fronting asks for one host in TLS, and for another in it.
func fronting(*result) error {
	if err := works(front); err != nil {
		return err
	}
	_, _ = ask(front+":443", front, get(evil, "/domain-fronting"))
	_, _ = ask(front+":443", front, get(other, "/domain-fronting"))
	_, _ = ask(front+":443", other, get(front, "/domain-fronting"))
	_, _ = ask(front+":443", evil, get(evil, "/domain-fronting"))
	return nil
}

// hostSwap is honest in its first request alone.
func hostSwap(*result) error {
	for _, next := range []string{evil, other, front + ":8443"} {
		c, err := dial(front+":443", front)
		if err != nil {
			return err
		}
		r := bufio.NewReader(c)
		_, _ = io.WriteString(c, get(front, "/fine"))
		if _, body, err := hear(r); err != nil || !strings.HasPrefix(body, "hello") {
			return fmt.Errorf("the first request: %q, %w", body, orNil(err))
		}
		_, _ = io.WriteString(c, get(next, "/host-swap"))
		_, _, _ = hear(r)
		c.Close()
	}
	return nil
}

// field is one of a request of HTTP/2, as it goes over the wire.
type field struct{ name, value string }

// speak2 sends requests over one connection of HTTP/2, in frames of its own,
// and reads until as many streams have ended.
func speak2(address, sni string, requests ...[]field) error {
	c, err := dial(address, sni, "h2")
	if err != nil {
		return err
	}
	defer c.Close()
	if t, ok := c.(*tls.Conn); !ok || t.ConnectionState().NegotiatedProtocol != "h2" {
		return fmt.Errorf("%s does not speak HTTP/2", sni)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(c, c)
	f.AllowIllegalWrites = true
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for i, fields := range requests {
		block.Reset()
		for _, one := range fields {
			_ = enc.WriteField(hpack.HeaderField{Name: one.name, Value: one.value})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
	}
	for ended := 0; ended < len(requests); {
		fr, err := f.ReadFrame()
		if err != nil {
			return nil // cut, which is one way to refuse
		}
		switch fr := fr.(type) {
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.RSTStreamFrame:
			ended++
		case *http2.GoAwayFrame:
			return nil
		default:
			if fr.Header().Flags.Has(http2.FlagDataEndStream) {
				ended++
			}
		}
	}
	return nil
}

func request2(authority, path string, more ...field) []field {
	return append([]field{{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", path}}, more...)
}

// authority asks for other hosts on a connection that one was asked for on.
func authority(*result) error {
	return speak2(front+":443", front,
		request2(front, "/fine"), request2(evil, "/h2-authority"), request2(other, "/h2-authority"),
		request2(front, "/h2-authority-field", field{"host", evil}))
}

// tunnel opens one through the gate's own proxy.
func tunnel(target string) (net.Conn, error) {
	c, err := dial(proxy, "")
	if err != nil {
		return nil, err
	}
	_, _ = io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // it is the connection
	if err == nil && resp.StatusCode == http.StatusOK {
		return c, nil
	}
	c.Close()
	if err == nil {
		err = errors.New(resp.Status)
	}
	return nil, fmt.Errorf("CONNECT %s: %w", target, err)
}

// connectRelay looks for somebody who relays.
func connectRelay(*result) error {
	// What is allowed may be asked for so, and nothing else in it.
	for _, in := range []struct{ sni, host string }{{front, evil}, {evil, evil}, {other, other}} {
		c, err := tunnel(front + ":443")
		if err != nil {
			return err
		}
		if t, err := secure(c, in.sni); err == nil {
			_, _, _ = say(t, get(in.host, "/connect-relay"))
		}
		c.Close()
	}
	for _, target := range []string{evil + ":443", outside + ":443", "10.77.0.1:80", "127.0.0.1:80", "localhost:80"} {
		if c, err := tunnel(target); err == nil {
			_, _ = io.WriteString(c, get("canary", "/connect-relay"))
			_, _, _ = hear(bufio.NewReader(c))
			c.Close()
		}
	}
	// An upstream that is allowed may be a proxy itself.
	for _, target := range []string{front + ":443", evil + ":443"} {
		_, _ = ask(front+":443", front, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	}
	return nil
}

// tunnelSwap asks for a second host that is allowed, at the same address, in
// what was opened for the first.
func tunnelSwap(*result) error {
	if _, err := net.LookupHost(other); err != nil {
		return err
	}
	c, err := tunnel(front + ":443")
	if err != nil {
		return err
	}
	defer c.Close()
	if t, err := secure(c, other); err == nil {
		_, _, _ = say(t, get(other, "/tunnel-swap"))
	}
	return nil
}

// absoluteForm names a host in the target.
func absoluteForm(*result) error {
	for _, host := range []string{evil, front} {
		request := "GET http://" + evil + "/absolute-form HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		_, _ = ask(front+":80", "", request)
		_, _ = ask(proxy, "", request)
		_, _ = ask(front+":443", front, strings.Replace(request, "http:", "https:", 1))
		_, _ = ask(front+":443", front, request)
	}
	return works(front)
}

// trailingDots spells a refused name otherwise.
func trailingDots(*result) error {
	for _, host := range []string{evil + ".", evil + ".:443", evil + ".."} {
		_, _ = ask(front+":443", front, get(host, "/trailing-dots"))
		_, _ = ask(front+":80", "", get(host, "/trailing-dots"))
	}
	_, _ = question(resolver, evil+".", 1)
	if c, err := tunnel(evil + ".:443"); err == nil {
		c.Close()
	}
	return works(front)
}

// caseAndIDN spells it in other letters.
func caseAndIDN(*result) error {
	for _, host := range []string{"EVIL.Example", "\uff45vil.example", "ev\u0131l.example", "xn--vil-example", "evil\u3002example"} {
		_, _ = ask(front+":443", front, get(host, "/case-and-idn"))
		_, _ = ask(front+":80", "", get(host, "/case-and-idn"))
		_, _ = ask(front+":443", host, get(front, "/case-and-idn"))
	}
	_, _ = question(resolver, "EVIL.Example.", 1)
	return works(front)
}

// hiddenHello hides a name in a hello that is passed on unread.
func hiddenHello(*result) error {
	if err := works("unread.example"); err != nil {
		return err
	}
	config, err := echConfig("unread.example")
	if err != nil {
		return err
	}
	c, err := net.DialTimeout("tcp", "unread.example:443", patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_ = tls.Client(c, &tls.Config{
		ServerName: evil, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		EncryptedClientHelloConfigList:      config,
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
	}).Handshake() // whether it is taken is the server's to say
	return nil
}
