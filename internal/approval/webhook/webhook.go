// Package webhook tells a program elsewhere what sandboxes ask and what became of
// it, by a signed POST. It is told, and decides nothing: what it answers is not read.
//
// It refuses to follow redirects, to go through a proxy, to send in the clear over a
// network, and to make anybody wait for it.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
)

// Headers of a request.
const (
	HeaderTime      = "X-Carboy-Timestamp" // seconds of Unix time
	HeaderSignature = "X-Carboy-Signature" // "sha256=" and the HMAC of time, "." and body, in hexadecimal
)

const (
	maxQueue = 256 // that wait to be sent; what comes then is dropped
	oneTime  = 5 * time.Second
	minKey   = 16 // bytes of a secret
)

// Check fails for a URL that nothing is sent to, and for a secret that is none.
func Check(target string, secret []byte) error {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("not a URL such as https://example.com/hook")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return errors.New("http is for addresses of this machine, 127.0.0.1 or [::1]: use https")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("neither http nor https")
	case len(secret) < minKey:
		return errors.New("a secret of 16 bytes at least is needed, to sign what is sent")
	}
	return nil
}

func isLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Hook sends to one URL. Its methods may be called by several goroutines.
type Hook struct {
	url    string
	secret []byte
	log    *slog.Logger
	client *http.Client
	queue  chan api.Approval
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// New returns a hook that sends until Close. Check has nothing against url and secret.
func New(target string, secret []byte, log *slog.Logger) *Hook {
	h := &Hook{url: target, secret: secret, log: log, queue: make(chan api.Approval, maxQueue)}
	h.client = &http.Client{
		Timeout:       oneTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: oneTime}).DialContext,
			TLSHandshakeTimeout: oneTime, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.done.Go(func() { h.run(ctx) })
	return h
}

// Close ends it. What was not sent is not.
func (h *Hook) Close() {
	h.stop()
	h.done.Wait()
	h.client.CloseIdleConnections()
}

// Tell has a be sent, and does not wait. What there is no room for is dropped.
func (h *Hook) Tell(a api.Approval) {
	select {
	case h.queue <- a:
	default:
		h.log.Debug("a webhook is too slow: not told", "approval", a.ID, "state", a.State)
	}
}

func (h *Hook) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-h.queue:
			if err := h.send(ctx, a); err != nil && ctx.Err() == nil {
				h.log.Warn("tell a webhook", "approval", a.ID, "err", err)
			}
		}
	}
}

func (h *Hook) send(ctx context.Context, a api.Approval) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL can't be used")
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderTime, now)
	req.Header.Set(HeaderSignature, Sign(h.secret, now, body))
	resp, err := h.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the URL may hold a token
		}
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return errors.New("it answered " + strconv.Itoa(resp.StatusCode))
	}
	return nil
}

// Sign is the signature of a body that was sent at a time.
func Sign(secret []byte, now string, body []byte) string {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(now + "."))
	m.Write(body)
	return "sha256=" + hex.EncodeToString(m.Sum(nil))
}
