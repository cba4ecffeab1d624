package gitgate_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/internal/gitgate"
)

// backend is git http-backend behind TLS, for who knows the password.
type backend struct {
	*httptest.Server
	mu     sync.Mutex
	seen   []string // hosts, methods and paths, with the credential that came
	before func(w http.ResponseWriter, r *http.Request) bool
}

const password = "not-for-the-agent"

func newBackend(t *testing.T, up *repo) *backend {
	t.Helper()
	core, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	b := &backend{}
	h := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(up.dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent"},
	}
	b.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, pass, _ := r.BasicAuth()
		b.mu.Lock()
		b.seen = append(b.seen, r.Method+" "+r.URL.Path+" "+user+":"+pass)
		before := b.before
		b.mu.Unlock()
		switch {
		case before != nil && before(w, r):
		case pass != password:
			http.Error(w, "who are you?", http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) answer(before func(w http.ResponseWriter, r *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen, b.before = nil, before
}

// roots trust the backend alone.
func (b *backend) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(b.Certificate())
	return pool
}

// passwords implements gitgate.Keys.
type passwords struct {
	mu    sync.Mutex
	asked int
	pass  string
	err   error
}

func (p *passwords) Signer(context.Context, string) (ssh.Signer, error) {
	return nil, errors.New("none")
}

func (p *passwords) Credential(context.Context, string) (gitgate.Credential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	return gitgate.Credential{Username: "me", Password: p.pass}, p.err
}

// times is how often it was asked.
func (p *passwords) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// set has it answer otherwise.
func (p *passwords) set(pass string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass, p.err = pass, err
}

// httpsWorld is one whose upstream is a backend.
func httpsWorld(t *testing.T, policy gitgate.Policy) (*world, *backend, *passwords) {
	t.Helper()
	w := &world{t: t, server: newServer(t), up: bare(t)}
	w.up.git("config", "http.receivepack", "true")
	b := newBackend(t, w.up)
	keys := &passwords{pass: password}
	w.serve(gitgate.Remote{Name: "up", URL: b.URL + "/up", Policy: policy}, func(c *gitgate.Config) {
		c.Keys, c.Roots, c.Dial = keys, b.roots(), (&net.Dialer{}).DialContext
	})
	w.agent = w.clone("agent")
	return w, b, keys
}

// TestHTTPS: an upstream by HTTPS is fetched from and pushed to, with a credential that is
// asked for each time and that the agent does not see.
func TestHTTPS(t *testing.T) {
	w, b, keys := httpsWorld(t, gitgate.Policy{})
	asked := keys.times()
	id := w.agent.commit("a", strings.Repeat("some text\n", 1000), "x")
	w.agent.git("push", "-q")
	if w.ref("main") != id || keys.times() == asked {
		t.Errorf("upstream has %s; a credential was asked for %d times", w.ref("main"), keys.times()-asked)
	}
	w.agent.git("push", "-q", "origin", "HEAD:refs/heads/a", "HEAD:refs/tags/b")
	b.mu.Lock()
	for _, s := range b.seen {
		if !strings.HasSuffix(s, " me:"+password) {
			t.Errorf("upstream saw %s", s)
		}
	}
	b.mu.Unlock()
	other := w.clone("other")
	if got := other.git("rev-parse", "HEAD"); got != id {
		t.Errorf("a clone has %s", got)
	}
	keys.set("wrong", nil)
	contains(t, w.agent.refuses("origin", "HEAD:z"), "does not take the credential")
	keys.set("", errors.New("the vault is shut"))
	contains(t, w.agent.refuses("origin", "HEAD:z"), "no credential for it can be had")
}

// TestUntrusted: a certificate that nobody vouches for is refused, and no credential is sent.
func TestUntrusted(t *testing.T) {
	up := bare(t)
	b := newBackend(t, up)
	w := &world{t: t, server: newServer(t), up: up}
	w.serve(gitgate.Remote{Name: "up", URL: b.URL + "/up"}, func(c *gitgate.Config) {
		c.Keys, c.Roots, c.Dial = &passwords{pass: password}, x509.NewCertPool(), nil
	})
	out, err := (&repo{t: t, dir: t.TempDir()}).try("clone", w.url, "x")
	if err == nil || len(b.seen) > 0 {
		t.Errorf("%v; upstream saw %v", err, b.seen)
	}
	contains(t, out, "can't be reached", "certificate")
}

// TestRedirect: an upstream that sends requests to another host is not followed, and that
// host sees nothing; elsewhere on the same host it is.
func TestRedirect(t *testing.T) {
	w, b, _ := httpsWorld(t, gitgate.Policy{})
	thief := newBackend(t, w.up)
	b.answer(func(rw http.ResponseWriter, r *http.Request) bool {
		http.Redirect(rw, r, thief.URL+r.URL.RequestURI(), http.StatusMovedPermanently)
		return true
	})
	out, err := w.agent.try("fetch")
	if err == nil {
		t.Error("it fetched")
	}
	contains(t, out, "redirects to another host")
	w.agent.commit("a", "a", "a")
	w.agent.refuses()
	if len(thief.seen) > 0 {
		t.Errorf("the other host saw %v", thief.seen)
	}
	b.answer(func(rw http.ResponseWriter, r *http.Request) bool {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/old/"); ok {
			http.Redirect(rw, r, "/up/"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
			return true
		}
		return false
	})
	moved := &world{t: t, server: w.server, up: w.up}
	moved.serve(gitgate.Remote{Name: "up", URL: b.URL + "/old"}, func(c *gitgate.Config) {
		c.Keys, c.Roots, c.Dial = &passwords{pass: password}, b.roots(), nil
	})
	w.agent.git("push", "-q", moved.url, "HEAD:refs/heads/moved")
}

// TestDumbUpstream: a server of files is none of git's.
func TestDumbUpstream(t *testing.T) {
	w, b, _ := httpsWorld(t, gitgate.Policy{})
	b.answer(func(rw http.ResponseWriter, r *http.Request) bool {
		http.ServeFileFS(rw, r, os.DirFS(filepath.Dir(w.up.dir)), strings.TrimPrefix(r.URL.Path, "/"))
		return true
	})
	w.up.git("update-server-info")
	out, err := w.agent.try("fetch")
	if err == nil {
		t.Error("it fetched")
	}
	contains(t, out, "no git server that speaks the smart protocol")
}

// TestURLs: what is no URL of an upstream's is refused when a gate is made.
func TestURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"ssh://git@host.example/a.git": true, "git@host.example:a/b.git": true, "ssh://host.example:2222/~/a": true, "https://host.example/a/b": true,
		"http://host.example/a": false, "git://host.example/a": false, "file:///a": false, "/a": false, "ext::sh -c x": false, "https://me:x@host.example/a": false,
		"https://me@host.example/a": false, "ssh://-oProxyCommand=x/a": false, "ssh://host.example/-a\nb": false, "https://host.example/a?b=c": false, "": false, "ssh://host.example": false,
	} {
		g, err := gitgate.New(gitgate.Config{Dir: t.TempDir(), Remotes: []gitgate.Remote{{Name: "a", URL: url}}})
		if (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
		if err == nil {
			must(t, g.Close())
		}
	}
}
