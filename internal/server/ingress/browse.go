package ingress

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// A person's browser reaches a port of a sandbox by a listener of its own, on
// this machine's loopback: by PORT-ID.localhost, which browsers know to be here,
// and which is an origin and a site of its own. A link that works once makes a
// cookie there; without the cookie, from a page of another origin, by any other
// name, or from a socket of another user, nothing is passed on.
const (
	browserDomain = "localhost"
	linkPath      = "/.carboy/open/"
	browserCookie = "carboy-open"

	// linkTTL is how long a link waits to be used.
	linkTTL = 5 * time.Minute
	// browserTTL is how long a browser is let in after that.
	browserTTL = 12 * time.Hour
	// maxLinks is how many links of one sandbox may wait to be used.
	maxLinks = 64
)

// links are the links that were given out, and not used yet: by the hash of
// what is secret in them.
type links struct {
	mu   sync.Mutex
	give map[[sha256.Size]byte]link
}

type link struct {
	target
	until time.Time
}

// add returns the secret of a new link.
func (l *links) add(t target, now time.Time) (secret string, until time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := 0
	for h, one := range l.give {
		switch {
		case now.After(one.until):
			delete(l.give, h)
		case one.id == t.id:
			waiting++
		}
	}
	if waiting >= maxLinks {
		e := sandbox.Errorf(sandbox.Exhausted, "more than %d links of this sandbox wait to be used", maxLinks).WithHint("use one, or wait until they expire")
		e.Retry = linkTTL
		return "", until, e
	}
	if l.give == nil {
		l.give = make(map[[sha256.Size]byte]link)
	}
	secret, until = rand.Text(), now.Add(linkTTL)
	l.give[sha256.Sum256([]byte(secret))] = link{t, until}
	return secret, until, nil
}

// use reports whether a secret is that of a link to t, and has it be none from
// then on.
func (l *links) use(t target, secret string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := sha256.Sum256([]byte(secret))
	one, ok := l.give[h]
	if !ok || one.target != t || now.After(one.until) {
		return false
	}
	if !weak.On(weak.OpenLinkKept) {
		delete(l.give, h)
	}
	return true
}

// ServeOpen gives a user of this machine a link to a port of a sandbox: POST
// /v1/sandboxes/{id}/ports/{port}/open.
func (in *Ingress) ServeOpen(w http.ResponseWriter, r *http.Request) {
	sb, port, err := in.ownPort(r)
	if err == nil && auth.Of(r).Peer == nil {
		err = sandbox.Errorf(sandbox.Denied, "a link is for a browser on the daemon's machine: a key has none").
			WithHint("previews are for other machines")
	}
	if err == nil && in.o.Browsers == nil {
		err = sandbox.Errorf(sandbox.Unsupported, "this daemon opens no ports to browsers")
	}
	if err == nil && sb.State != sandbox.StateRunning {
		err = notRunning(sb)
	}
	var at int
	if err == nil {
		at, err = in.o.Browsers(r.Context())
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	secret, until, err := in.links.add(target{sb.ID, port}, time.Now())
	if err != nil {
		wire.Error(w, err)
		return
	}
	wire.JSON(w, http.StatusOK, api.OpenedPort{
		URL: "http://" + browserHost(sb.ID, port, at) + linkPath + secret, ExpiresAt: until.UTC(), SessionMillis: browserTTL.Milliseconds(),
	})
}

// browserHost is the name and port by which a browser reaches a port of a sandbox.
func browserHost(id string, port, at int) string {
	return fmt.Sprintf("%d-%s.%s:%d", port, strings.Replace(id, "_", "-", 1), browserDomain, at)
}

type browserPeer struct{}

// WithBrowser notes whose browser is at the other end: a ConnContext.
func WithBrowser(ctx context.Context, c net.Conn) context.Context {
	if uid, ok := loopback.PeerUser(c); ok {
		return context.WithValue(ctx, browserPeer{}, uid)
	}
	return ctx
}

// ServeBrowser passes a request on that a browser on this machine sent by the
// name of a port, for the user whose sandbox it is.
func (in *Ingress) ServeBrowser(w http.ResponseWriter, r *http.Request) {
	t, named := parseHost(r.Host, browserDomain)
	fail := failTo(r, target{})
	if !named || t.port == 0 || t.port == sandbox.GuestPort || r.Method == http.MethodConnect {
		failAs(w, r, target{}, http.StatusNotFound, sandbox.Errorf(sandbox.NotFound, "no port of a sandbox has this name").
			WithHint("carboy open NAME PORT"))
		return
	}
	sb, err := in.m.Get(r.Context(), anyone, t.id)
	if err != nil || !isOwner(r, sb) {
		// Others are not told whether there is one.
		fail(w, errNotOpen(t))
		return
	}
	if secret, ok := strings.CutPrefix(r.URL.Path, linkPath); ok {
		in.useLink(w, r, sb, t, secret)
		return
	}
	if !fromOwnOrigin(r) && !weak.On(weak.OpenPagesAllowed) {
		fail(w, sandbox.Errorf(sandbox.Denied, "requests of pages of other origins are refused"))
		return
	}
	if !admitBrowser(r, sb, t, time.Now()) {
		fail(w, errNotOpen(t))
		return
	}
	in.browse(w, r, sb, t)
}

// browse passes on a request that was let in.
func (in *Ingress) browse(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, t target) {
	fail := failTo(r, t)
	leave, ok := in.flows.enter(sb.ID)
	if !ok {
		fail(w, sandbox.Errorf(sandbox.Exhausted, "more than %d requests to this sandbox are under way", maxFlows))
		return
	}
	defer leave()
	if sb = in.wake(w, r, sb, fail); sb == nil {
		return
	}
	in.forward(w, withoutCookie(r), sb, hop{port: t.port, fail: fail, host: sb.Spec.Traffic.HostFor(t.port), browser: true, secret: in.ours(r.Context(), sb)})
}

func errNotOpen(t target) error {
	return sandbox.Errorf(sandbox.Denied, "this browser was not let in here, or it was too long ago").
		WithHint("carboy open NAME %d, and the link that it prints", t.port)
}

// isOwner reports whether r came from a socket of sb's owner, or of root's.
func isOwner(r *http.Request, sb *sandbox.Sandbox) bool {
	if weak.On(weak.LoopbackForAll) {
		return true
	}
	uid, ok := r.Context().Value(browserPeer{}).(uint32)
	return ok && (uid == 0 || sb.Owner == "uid:"+strconv.FormatUint(uint64(uid), 10))
}

// fromOwnOrigin reports whether r comes from a page of the name that it asks, or
// from a person who goes there. A page of another origin may link there, and no
// more: it embeds nothing, and asks nothing in the person's name.
func fromOwnOrigin(r *http.Request) bool {
	h := r.Header
	if origins := h.Values("Origin"); len(origins) > 0 {
		u, err := url.Parse(origins[0])
		return len(origins) == 1 && err == nil && u.Scheme == "http" && strings.EqualFold(u.Host, r.Host)
	}
	switch site := h.Get("Sec-Fetch-Site"); site {
	case "", "none", "same-origin":
		return len(h.Values("Sec-Fetch-Site")) <= 1
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
}

// useLink lets a browser in that has a link, and has it go to the server inside
// from here: to one that was led by another site's page it would come without
// the cookie.
func (in *Ingress) useLink(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, t target, secret string) {
	fail := failTo(r, t)
	dest := cmp.Or(r.Header.Get("Sec-Fetch-Dest"), "document")
	switch {
	case r.Method != http.MethodGet || dest != "document":
		fail(w, sandbox.Errorf(sandbox.Invalid, "a link is for the address bar of a browser"))
		return
	case strings.HasPrefix(r.Header.Get("Sec-Purpose"), "prefetch"):
		fail(w, sandbox.Errorf(sandbox.Conflict, "a link is used when somebody goes there, not before"))
		return
	case !in.links.use(t, secret, time.Now()):
		fail(w, sandbox.Errorf(sandbox.Denied, "this link was used before, has expired, or is none").
			WithHint("carboy open NAME %d, and the link that it prints", t.port))
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: browserCookie, Value: newPass(sb, t, time.Now().Add(browserTTL)), Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: int(browserTTL / time.Second),
	})
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, `<!DOCTYPE html><meta charset="utf-8"><title>Carboy</title><meta http-equiv="refresh" content="0;url=/"><a href="/">Go on</a>`)
}

// newPass makes what a browser shows in its cookie. It needs no record: a daemon
// that comes after knows it, and it ends with its sandbox.
func newPass(sb *sandbox.Sandbox, t target, until time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(until.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(b, sealPass(sb, t, b)...))
}

// sealPass is by the sandbox's own tokens, of which the one for its ports is not
// known inside either.
func sealPass(sb *sandbox.Sandbox, t target, until []byte) []byte {
	m := hmac.New(sha256.New, []byte(sb.TrafficToken+"\x00"+sb.Token))
	fmt.Fprintf(m, "carboy open\x00%s\x00%d\x00", sb.ID, t.port)
	m.Write(until)
	return m.Sum(nil)
}

// admitBrowser reports whether r shows a pass for t that holds.
func admitBrowser(r *http.Request, sb *sandbox.Sandbox, t target, now time.Time) bool {
	return slices.ContainsFunc(r.CookiesNamed(browserCookie), func(c *http.Cookie) bool {
		b, err := base64.RawURLEncoding.DecodeString(c.Value)
		if err != nil || len(b) != 8+sha256.Size || sb.Token == "" {
			return false
		}
		good := hmac.Equal(b[8:], sealPass(sb, t, b[:8]))
		return good && now.Unix() <= int64(binary.BigEndian.Uint64(b))
	})
}

// withoutCookie keeps the pass from the server inside.
func withoutCookie(r *http.Request) *http.Request {
	out := r.Clone(r.Context())
	out.Header.Del("Cookie")
	var kept []string
	for _, line := range r.Header.Values("Cookie") {
		for part := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(part, "=")
			if strings.TrimSpace(name) != browserCookie && strings.TrimSpace(part) != "" {
				kept = append(kept, strings.TrimSpace(part))
			}
		}
	}
	if len(kept) > 0 {
		out.Header.Set("Cookie", strings.Join(kept, "; "))
	}
	return out
}

// cleanForBrowser keeps a server inside from setting cookies beyond its own
// name, and the pass.
func cleanForBrowser(h http.Header) {
	hostOnlyCookies(h, browserDomain)
	h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], func(c string) bool {
		name, _, _ := strings.Cut(c, "=")
		return strings.TrimSpace(name) == browserCookie
	})
	if len(h["Set-Cookie"]) == 0 {
		h.Del("Set-Cookie")
	}
}
