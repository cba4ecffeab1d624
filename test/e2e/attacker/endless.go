package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func init() {
	attempts["slowloris"] = slowloris
	attempts["too-many-connections"] = tooMany
	attempts["endless-answer"] = endless
	attempts["answer-before-asked"] = beforeAsked
	attempts["bad-certificates"] = badCertificates
	attempts["open-stream"] = openStream
	attempts["open-request"] = openRequest
}

// slowloris says as little as it may, for longer than it may.
func slowloris(r *result) error {
	long := 15*time.Second + 2*patience // a head may take fifteen seconds
	var open atomic.Int32
	var wg sync.WaitGroup
	for _, start := range []struct{ address, sni, text string }{
		{front + ":443", front, "GET /slowloris HTTP/1.1\r\nHost: " + front + "\r\n"},
		{front + ":80", "", "GET /slowloris HTTP/1.1\r\n"},
		{front + ":80", "", "G"},
		{front + ":443", "", "\x16\x03\x01\x02\x00\x01"},
		{front + ":443", "", ""},
		{proxy, "", "GET http://"},
	} {
		c, err := dial(start.address, start.sni)
		if err != nil {
			return err
		}
		defer c.Close()
		wg.Go(func() {
			if drip(c, start.text, long) {
				open.Add(1)
			}
		})
	}
	wg.Wait()
	if n := open.Load(); n > 0 {
		r.Found = fmt.Sprintf("%d connections are open after %v", n, long)
	}
	return nil
}

// drip reports whether a connection stays open for as long as it is given a
// byte now and then.
func drip(c net.Conn, begin string, long time.Duration) bool {
	_ = c.SetDeadline(time.Now().Add(long))
	if _, err := io.WriteString(c, begin); err != nil {
		return false
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 512)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := time.NewTimer(long - 500*time.Millisecond)
	defer last.Stop()
	for {
		select {
		case <-ended:
			return false
		case <-last.C:
			return true
		case <-tick.C:
			if begin != "" {
				_, _ = io.WriteString(c, "a")
			}
		}
	}
}

// tooMany opens more connections than a sandbox may have, and keeps them. Each has had an
// answer, so that it is not one that is about to be closed.
func tooMany(r *result) error {
	const (
		bound = 4096
		want  = bound + 100
	)
	addrs, err := net.LookupHost(front)
	if err != nil {
		return err
	}
	kept, err := dial(front+":443", front)
	if err != nil {
		return err
	}
	defer kept.Close()
	fine := func() error { // which leaves it quiet for as long as it may be between two requests
		_ = kept.SetDeadline(time.Now().Add(10 * patience))
		if _, body, err := say(kept, get(front, "/fine")); err != nil || !strings.HasPrefix(body, "hello") {
			return fmt.Errorf("a connection that was open before: %q, %w", body, orNil(err))
		}
		return nil
	}
	if err := fine(); err != nil {
		return err
	}
	conns := make([]net.Conn, want)
	var next, refused atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < want; i = int(next.Add(1)) - 1 {
				c, err := heard(addrs[0] + ":80")
				if err != nil {
					refused.Add(1)
					continue
				}
				conns[i] = c
			}
		})
	}
	wg.Wait()
	if err := fine(); err != nil {
		return err
	}
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	open := stillOpen(conns)
	switch {
	case open > bound:
		r.Found = fmt.Sprintf("%d connections are open", open)
	case open < bound/2:
		return fmt.Errorf("only %d of %d connections are open, %d were refused", open, want, refused.Load())
	}
	return nil
}

// heard connects, and has an answer. The connection is quiet then, which it may be for long.
func heard(address string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(10 * patience))
	if _, body, err := say(c, get(front, "/fine")); err != nil || !strings.HasPrefix(body, "hello") {
		c.Close()
		return nil, fmt.Errorf("an answer: %q, %w", body, orNil(err))
	}
	return c, nil
}

// stillOpen counts those that are neither closed nor reset after a while.
func stillOpen(conns []net.Conn) int {
	at := time.Now().Add(time.Second)
	var open atomic.Int32
	var wg sync.WaitGroup
	for _, c := range conns {
		if c == nil {
			continue
		}
		wg.Go(func() {
			_ = c.SetReadDeadline(at)
			_, err := c.Read(make([]byte, 1))
			if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
				open.Add(1)
			}
		})
	}
	wg.Wait()
	return int(open.Load())
}

// endless reads what its rule bounds.
func endless(r *result) error {
	c, err := dial("endless.example:443", "endless.example")
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, get("endless.example", "/endless"))
	n, _ := io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	if n > 128<<10 {
		r.Found = fmt.Sprintf("%d bytes of an answer that may have 65536", n)
	}
	if n == 0 {
		return fmt.Errorf("nothing was answered")
	}
	return nil
}

// beforeAsked has an upstream answer what others ask.
func beforeAsked(r *result) error {
	for range 10 {
		_, _ = ask("hostile.example:443", "hostile.example", get("hostile.example", "/"))
		body, err := ask(other+":443", other, get(other, "/fine"))
		if err != nil {
			return err
		}
		if strings.Contains(body, "poison") {
			r.Found = "another host's answer: " + body
		}
	}
	return nil
}

// badCertificates trusts whoever the gate does.
func badCertificates(*result) error {
	for _, host := range []string{"wrong.example", "expired.example", "nul.example", "unsigned.example"} {
		_, _ = ask(host+":443", host, get(host, "/bad-certificates"))
	}
	return works(front)
}

// openStream keeps one open that any bytes may pass.
func openStream(*result) error {
	return keepSending("stream.example:9000", "", "open-stream\n", "open-stream\n")
}

// openRequest keeps a request open whose body has no end.
func openRequest(*result) error {
	const host = "later.example"
	return keepSending(host+":443", host,
		"POST /open-request HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n")
}

// keepSending says the same again until it can't, or has for long enough.
func keepSending(address, sni, first, again string) error {
	c, err := dial(address, sni)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * patience)) // longer than it takes to change a policy, and to notice that this goes on
	if _, err := io.WriteString(c, first); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = bufio.NewReader(c).ReadString(0)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return nil
		case <-tick.C:
			if _, err := io.WriteString(c, again); err != nil {
				return nil
			}
		}
	}
}
