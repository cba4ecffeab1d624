package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	waits "github.com/carboy-sandbox/carboy/test/patience"
)

// Names of the world, and of the gate.
const (
	front    = "front.example"    // allowed
	other    = "other.example"    // allowed, at the same address
	evil     = "evil.example"     // at the same address too, and not allowed
	proxy    = "192.0.0.1:3128"   // the gate's own
	resolver = "192.0.0.1:53"     // likewise
	outside  = "93.184.216.35"    // an address that no name leads to
	worldDNS = "93.184.216.53:53" // somebody else's resolver
)

// patience is how long an answer is waited for.
var patience = waits.For(2 * time.Second)

// dial connects to a host's port, in TLS if sni is not "".
func dial(address, sni string, protocols ...string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	if sni == "" {
		return c, c.SetDeadline(time.Now().Add(patience))
	}
	return secure(c, sni, protocols...)
}

// secure makes TLS of a connection, whoever answers.
func secure(c net.Conn, sni string, protocols ...string) (net.Conn, error) {
	_ = c.SetDeadline(time.Now().Add(patience))
	t := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true, NextProtos: protocols})
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// say writes a request as it is given, and returns the head and the body of
// what is answered.
func say(c net.Conn, request string) (head, body string, err error) {
	if _, err := io.WriteString(c, request); err != nil {
		return "", "", err
	}
	return hear(bufio.NewReader(c))
}

func hear(r *bufio.Reader) (head, body string, err error) {
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	var b strings.Builder
	_ = resp.Header.Write(&b)
	return resp.Status + "\r\n" + b.String(), string(raw), err
}

// ask sends one request on a connection of its own.
func ask(address, sni, request string) (body string, err error) {
	c, err := dial(address, sni)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, body, err = say(c, request)
	return body, err
}

// get is a plain request.
func get(host, path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(append(fields, "", ""), "\r\n")
}

// works makes sure that what is allowed gets through, so that what does not
// was refused.
func works(host string) error {
	body, err := ask(host+":443", host, get(host, "/fine", "Connection: close"))
	if err != nil || !strings.HasPrefix(body, "hello from ") {
		return fmt.Errorf("what is allowed does not work: %q, %w", body, orNil(err))
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}
