package gate

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Loaded is what the client saw.
type Loaded struct {
	Micros []float64 `json:"micros,omitempty"` // of each request, or between events
	First  float64   `json:"first,omitempty"`  // microseconds until the first event
	Millis float64   `json:"millis,omitempty"` // of a transfer
}

// asker is the client: the one that is used in all places.
type asker struct {
	http *http.Client
	url  string
}

// Load is the client: it does one thing, once, and writes what it saw.
func Load(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	do := fs.String("do", "requests", "requests, down, up, events, hold or stream")
	host := fs.String("host", NameRead, "whom to ask")
	ca := fs.String("ca", "", "whom to trust; the system's where it is empty")
	proxy := fs.String("proxy", "", "URL of a proxy")
	n := fs.Int("n", 1, "how many, or how many MiB")
	h2 := fs.Bool("h2", false, "HTTP/2")
	if err := fs.Parse(args); err != nil {
		return err
	}
	c, err := newAsker(*host, *ca, *proxy, *h2)
	if err != nil {
		return err
	}
	var l *Loaded
	switch *do {
	case "requests":
		l, err = c.requests(*n)
	case "down":
		l, err = c.down(int64(*n) << 20)
	case "up":
		l, err = c.up(int64(*n) << 20)
	case "events":
		l, err = c.events(*n)
	case "hold", "stream":
		return c.hold(*n, *do == "stream", out)
	default:
		err = fmt.Errorf("%q is nothing that can be done", *do)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(l)
}

func newAsker(host, ca, proxy string, h2 bool) (*asker, error) {
	t := &http.Transport{
		TLSClientConfig: &tls.Config{}, Protocols: new(http.Protocols),
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}
	t.Protocols.SetHTTP1(!h2)
	t.Protocols.SetHTTP2(h2)
	if ca != "" {
		raw, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		t.TLSClientConfig.RootCAs.AppendCertsFromPEM(raw)
	}
	if proxy == "" {
		// Resolved once: a thousand questions at once are more than a gate answers.
		addrs, err := net.LookupHost(host)
		if err != nil {
			return nil, err
		}
		t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(addrs[0], "443"))
		}
	} else {
		u, err := url.Parse(proxy)
		if err != nil {
			return nil, err
		}
		t.Proxy = http.ProxyURL(u)
	}
	return &asker{http: &http.Client{Transport: t}, url: "https://" + host}, nil
}

func (c *asker) get(path string) (*http.Response, error) {
	resp, err := c.http.Get(c.url + path)
	if err == nil && resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		resp.Body.Close()
		err = fmt.Errorf("status %s: %s", resp.Status, body)
	}
	return resp, err
}

func (c *asker) ask() error {
	resp, err := c.get("/small")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && int(n) != len(answer) {
		err = fmt.Errorf("%d bytes came", n)
	}
	return err
}

// Warmup is how many requests go before those that count.
const Warmup = 100

// requests asks one after the other, over one connection.
func (c *asker) requests(n int) (*Loaded, error) {
	for range min(n, Warmup) {
		if err := c.ask(); err != nil {
			return nil, err
		}
	}
	l := &Loaded{}
	for range n {
		begun := time.Now()
		if err := c.ask(); err != nil {
			return nil, err
		}
		l.Micros = append(l.Micros, float64(time.Since(begun).Nanoseconds())/1e3)
	}
	return l, nil
}

func (c *asker) down(n int64) (*Loaded, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	begun := time.Now()
	resp, err := c.get("/down?bytes=" + strconv.FormatInt(n, 10))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes came", got)
	}
	return &Loaded{Millis: float64(time.Since(begun).Microseconds()) / 1e3}, err
}

// zeros reads as bytes of no meaning.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func (c *asker) up(n int64) (*Loaded, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, c.url+"/up", io.LimitReader(zeros{}, n))
	if err != nil {
		return nil, err
	}
	req.ContentLength = n
	begun := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && string(got) != strconv.FormatInt(n, 10) {
		err = fmt.Errorf("the server says %q", got)
	}
	return &Loaded{Millis: float64(time.Since(begun).Microseconds()) / 1e3}, err
}

// Gap is what lies between two events.
const Gap = 5 * time.Millisecond

func (c *asker) events(n int) (*Loaded, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	begun := time.Now()
	resp, err := c.get(fmt.Sprintf("/events?n=%d&gap=%v", n, Gap))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	l, last, lines := &Loaded{}, begun, bufio.NewScanner(resp.Body)
	for seen := 0; lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "data: ") {
			continue
		}
		now := time.Now()
		us := float64(now.Sub(last).Nanoseconds()) / 1e3
		if last = now; seen == 0 {
			l.First = us
		} else {
			l.Micros = append(l.Micros, us)
		}
		seen++
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(l.Micros) != n-1 {
		return nil, fmt.Errorf("%d events came", len(l.Micros)+1)
	}
	return l, nil
}

// hold opens connections, each with a request that was answered or a stream
// that goes on, says so with a line, and ends with standard input.
func (c *asker) hold(n int, stream bool, out io.Writer) error {
	base := c.http.Transport.(*http.Transport)
	for range n {
		one := &asker{http: &http.Client{Transport: base.Clone()}, url: c.url}
		if !stream {
			if err := one.ask(); err != nil {
				return err
			}
			continue
		}
		resp, err := one.get("/events?n=2&gap=1h")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 100)); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, "open\n"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return errors.Join(err)
}
