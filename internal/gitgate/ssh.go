package gitgate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// sshUpstream is reached by SSH. Its host is known by keys that it was told, and no other.
type sshUpstream struct {
	remote string
	place  gitremote.Place
	pinned []ssh.PublicKey
	keys   Keys
	dial   Dial
}

func newSSH(r Remote, p gitremote.Place, keys Keys, dial Dial) (*sshUpstream, error) {
	u := &sshUpstream{remote: r.Name, place: p, keys: keys, dial: dial}
	for _, line := range r.HostKeys {
		key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil || len(bytes.TrimSpace(rest)) > 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "remote %s: a key of its host is none: %.40q", r.Name, line).
				WithHint("it is a type and a key, as ssh-keyscan prints them after the host's name: ssh-ed25519 AAAA…")
		}
		u.pinned = append(u.pinned, key)
	}
	return u, nil
}

// errUnpinned is of a host whose key nobody has told.
func (u *sshUpstream) errUnpinned() error {
	return sandbox.Errorf(sandbox.Denied, "the key of %s is not known, and none is taken on trust", u.place.Host).
		WithHint("have the sandbox's owner give the remote the key of its host")
}

// check is an ssh.HostKeyCallback: it takes the pinned keys.
func (u *sshUpstream) check(_ string, _ net.Addr, key ssh.PublicKey) error {
	if weak.On(weak.GitHostUnproved) {
		return nil
	}
	for _, p := range u.pinned {
		if bytes.Equal(p.Marshal(), key.Marshal()) {
			return nil
		}
	}
	return sandbox.Errorf(sandbox.Denied, "%s has the key %s, which is not the one that it was known by: it has changed, or somebody else answers", u.place.Host, ssh.FingerprintSHA256(key))
}

// algorithms are those of the pinned keys: a host that has several shows one of them.
func (u *sshUpstream) algorithms() (names []string) {
	for _, p := range u.pinned {
		if p.Type() == ssh.KeyAlgoRSA {
			names = append(names, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			names = append(names, p.Type())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// open implements upstream.
func (u *sshUpstream) open(ctx context.Context, service string) (_ conversation, err error) {
	if len(u.pinned) == 0 && !weak.On(weak.GitHostUnproved) {
		return nil, u.errUnpinned()
	}
	signer, err := u.keys.Signer(ctx, u.remote)
	if err != nil {
		return nil, unseen(err, "no key for it can be had")
	}
	client, err := u.connect(ctx, signer)
	if err != nil {
		return nil, err
	}
	c := &sshConversation{client: client}
	c.stop = context.AfterFunc(ctx, func() { _ = client.Close() }) // what is read or written fails
	defer func() {
		if err != nil {
			err = c.reason(ctx, err)
			_ = c.Close() // it failed before
		}
	}()
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	if c.in, err = session.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = session.StdoutPipe(); err != nil {
		return nil, err
	}
	session.Stderr = &c.words
	if err := session.Start(service + " " + shell.Quote(u.place.Path)); err != nil {
		return nil, err
	}
	c.refs, err = readAdvert(c.out)
	return c, err
}

// connect makes a connection whose host has proved itself.
func (u *sshUpstream) connect(ctx context.Context, signer ssh.Signer) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	address := net.JoinHostPort(u.place.Host, u.place.Port)
	conn, err := u.dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s can't be reached: %w", address, unplaced(err))
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	sc, channels, requests, err := ssh.NewClientConn(newIdle(conn), address, &ssh.ClientConfig{
		User: u.place.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: u.check, HostKeyAlgorithms: u.algorithms(),
	})
	if err == nil {
		return ssh.NewClient(sc, channels, requests), nil
	}
	_ = conn.Close() // it failed before
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return nil, e
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s does not answer", address)
	}
	if strings.Contains(err.Error(), "unable to authenticate") { // the library has no other sign of it
		return nil, fmt.Errorf("%s does not take the key %s for %s: add its public key there", address, ssh.FingerprintSHA256(signer.PublicKey()), u.place.User)
	}
	return nil, fmt.Errorf("%s: %w", u.place.Host, unplaced(err))
}

// sshConversation is one with a service by SSH.
type sshConversation struct {
	client *ssh.Client
	in     io.WriteCloser
	out    io.Reader
	words  lastWords
	refs   *advert
	stop   func() bool
	called bool
}

func (c *sshConversation) advert() *advert { return c.refs }

// call implements conversation.
func (c *sshConversation) call(ctx context.Context, body io.Reader, _ int64) (io.Reader, error) {
	c.called = true
	failed := make(chan error, 1)
	go func() {
		_, err := io.Copy(c.in, body)
		if err != nil {
			_ = c.client.Close() // or upstream would wait for the rest
		} else {
			err = c.in.Close()
		}
		failed <- err
	}()
	return &answer{ctx: ctx, c: c, failed: failed}, nil
}

// reason is why something failed: what upstream said last tells more than that it ended.
func (c *sshConversation) reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if says := c.said(); says != "" && !errors.As(err, new(*remoteError)) {
		return fmt.Errorf("upstream says: %s (%w)", says, err)
	}
	return err
}

func (c *sshConversation) said() string { return c.words.String() }

// Close implements io.Closer.
func (c *sshConversation) Close() error {
	if !c.called && c.refs != nil {
		_, _ = io.WriteString(c.in, "0000") // nothing is wanted
	}
	c.stop() // until then the time is bounded
	return c.client.Close()
}

// answer reads what upstream answers. Where sending failed, that is why.
type answer struct {
	ctx    context.Context
	c      *sshConversation
	failed chan error
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.c.out.Read(p)
	if err == nil {
		return n, nil
	}
	if a.ctx.Err() != nil {
		return n, context.Cause(a.ctx)
	}
	select {
	case sent := <-a.failed:
		if a.failed <- sent; sent != nil && !errors.Is(sent, io.EOF) {
			return n, sent
		}
	default:
	}
	return n, err
}

// lastWords keeps the end of what is written to it.
type lastWords struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer.
func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf, p...)
	w.buf = w.buf[max(0, len(w.buf)-maxWords):]
	return len(p), nil
}

// String is what was kept, fit to be shown.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return words(string(w.buf))
}
