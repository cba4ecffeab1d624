package gitgate

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Services of a git server.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// Keys says how the gate proves to upstreams who it is. What it returns leaves the gate for
// that upstream alone.
type Keys interface {
	// Signer is for an upstream by SSH.
	Signer(ctx context.Context, remote string) (ssh.Signer, error)
	// Credential is for an upstream by HTTPS. It is asked for each fetch and each push.
	Credential(ctx context.Context, remote string) (Credential, error)
}

// Credential is what an upstream by HTTPS knows the gate by; the zero one is nobody's.
type Credential struct{ Username, Password string }

// Dial opens connections to upstreams.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// upstream is a repository elsewhere.
type upstream interface {
	// open begins to talk with a service of it, and hears its refs.
	open(ctx context.Context, service string) (conversation, error)
}

// conversation is one request of a service, and its answer.
type conversation interface {
	advert() *advert
	// call sends a body of that size, and returns the answer as it comes. It is called once
	// at most.
	call(ctx context.Context, body io.Reader, size int64) (io.Reader, error)
	// said is what upstream said besides, for people.
	said() string
	io.Closer
}

// errLost is of a connection that ended before what was to come had.
var errLost = errors.New("the connection to upstream was lost")

const (
	dialTime = 20 * time.Second
	maxWords = 8 << 10 // bytes that it says for people
)

// parseURL is gitremote.Parse with an error for people.
func parseURL(raw string) (gitremote.Place, error) {
	p, problem := gitremote.Parse(raw)
	if problem != "" {
		return p, sandbox.Errorf(sandbox.Invalid, "the URL: %s", problem).WithHint(gitremote.Forms)
	}
	return p, nil
}

// newUpstream makes the upstream of a remote.
func newUpstream(r Remote, keys Keys, dial Dial, roots *x509.CertPool) (upstream, error) {
	p, err := parseURL(r.URL)
	if err != nil {
		return nil, err
	}
	if !p.SSH {
		if len(r.HostKeys) > 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "remote %s: keys of a host are for SSH, and it is reached by HTTPS", r.Name)
		}
		return newHTTPS(r.Name, p, keys, dial, roots), nil
	}
	return newSSH(r, p, keys, dial)
}

// unseen is the error of a secret that can't be had. Why is for the owner: it may name files of theirs.
func unseen(err error, what string) error {
	return &sandbox.Error{Kind: sandbox.Unavailable, Msg: what + ": its owner can see why", Err: err}
}

// unplaced is an error of the network's without the addresses that it has.
func unplaced(err error) error {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New(e.Err)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		if call, ok := errors.AsType[syscall.Errno](e.Err); ok {
			return call
		}
		return e.Err
	}
	return err
}

// words makes text of upstream's fit to be shown.
func words(s string) string {
	return strings.TrimSpace(string(term.EscapeText([]byte(strings.ReplaceAll(clip(s, maxWords), "\r", "\n")))))
}

// clip cuts text.
func clip(s string, most int) string { return s[:min(len(s), most)] }
