package main

import (
	"bufio"
	"net"
	"strings"
	"time"
)

func init() {
	attempts["rebinding"] = rebinding
	attempts["cname-to-private"] = named("cname-to-private", "cname.wild.example")
	attempts["wrapped-addresses"] = wrapped
	attempts["metadata-and-loopback"] = special
	attempts["by-number"] = byNumber
	attempts["host-loopback"] = hostLoopback
	attempts["other-sandbox"] = otherSandbox
}

// knock sends a request for an attempt to an address, under a name.
func knock(name, address, host string) {
	if c, err := dial(address, ""); err == nil {
		_, _, _ = say(c, get(host, "/"+name))
		c.Close()
	}
}

// named goes wherever names of a zone lead.
func named(name string, hosts ...string) attempt {
	return func(*result) error {
		for _, h := range hosts {
			addrs, _ := net.LookupHost(h)
			for _, a := range addrs {
				knock(name, net.JoinHostPort(a, "80"), h)
			}
			if c, err := dial(proxy, ""); err == nil {
				_, _, _ = say(c, "GET http://"+h+"/"+name+" HTTP/1.1\r\nHost: "+h+"\r\n\r\n")
				c.Close()
			}
			if c, err := tunnel(h + ":80"); err == nil {
				_, _, _ = say(c, get(h, "/"+name))
				c.Close()
			}
		}
		return works(front)
	}
}

// rebinding asks for a name whose answer changes, and goes where each led to.
func rebinding(r *result) error {
	first, err := net.LookupHost("rebind.wild.example")
	if err != nil {
		return err
	}
	for _, a := range first {
		knock("fine", net.JoinHostPort(a, "80"), "rebind.wild.example")
	}
	for range 3 {
		if err := named("rebinding", "rebind.wild.example", "both.wild.example")(r); err != nil {
			return err
		}
	}
	knock("rebinding", "10.77.0.1:80", "rebind.wild.example")
	return nil
}

// wrapped has IPv6 lead to IPv4.
func wrapped(r *result) error {
	for _, a := range []string{"64:ff9b::a4d:1", "::ffff:10.77.0.1", "2002:a4d:1::1", "::10.77.0.1"} {
		knock("wrapped-addresses", net.JoinHostPort(a, "80"), "nat64.wild.example")
	}
	return named("wrapped-addresses", "nat64.wild.example", "mapped.wild.example")(r)
}

// special goes to what every host has, and every cloud.
func special(r *result) error {
	for _, a := range []string{"127.0.0.1", "::1", "169.254.169.254", "10.77.0.1", "0.0.0.0", "192.0.0.3"} {
		knock("metadata-and-loopback", net.JoinHostPort(a, "80"), "meta.wild.example")
	}
	return named("metadata-and-loopback", "meta.wild.example", "loop.wild.example", "zero.wild.example", "localhost")(r)
}

// byNumber writes addresses as C libraries read them.
func byNumber(*result) error {
	for _, n := range []string{"10.77.1", "0xa.0x4d.0.0x1", "012.0115.0.01", "172818433", "0x0a4d0001"} {
		_, _ = question(resolver, n+".", 1)
		if c, err := tunnel(n + ":80"); err == nil {
			_, _, _ = say(c, get(n, "/by-number"))
			c.Close()
		}
		if c, err := dial(proxy, ""); err == nil {
			_, _, _ = say(c, "GET http://"+n+"/by-number HTTP/1.1\r\nHost: "+n+"\r\n\r\n")
			c.Close()
		}
		knock("by-number", front+":80", n)
	}
	return works(front)
}

// hostLoopback goes to where the host listens for itself.
func hostLoopback(*result) error {
	knock("host-loopback", "127.0.0.1:80", "canary")
	return nil
}

// otherSandbox goes to where another one listens: all have the same address.
func otherSandbox(r *result) error {
	for _, a := range []string{"192.0.0.2", "192.0.0.4", "192.0.0.7", "fd63:6172:626f:7900::2", "127.0.0.1", "::1"} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(a, "7777"), patience)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		line, _ := bufio.NewReader(c).ReadString('\n')
		if strings.Contains(line, "another sandbox") {
			r.Found = "the other sandbox at " + a
		}
		c.Close()
	}
	return nil
}
