package live

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// store has secrets by their names.
type store map[string]string

func (s store) ForRemote(_ context.Context, owner, _, name string) (secret.Minted, error) {
	v, ok := s[owner+" "+name]
	if !ok {
		return secret.Minted{}, sandbox.Errorf(sandbox.NotFound, "secret %s is not there", name)
	}
	return secret.Minted{Value: secret.NewValue([]byte(v))}, nil
}

func (s store) Known(_ context.Context, owner, _ string, names []string) (map[string]secret.Value, error) {
	all := map[string]secret.Value{}
	for _, name := range names {
		v, ok := s[owner+" "+name]
		if !ok {
			return nil, sandbox.Errorf(sandbox.Unavailable, "secret %s can't be read", name)
		}
		all[name] = secret.NewValue([]byte(v))
	}
	return all, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a key, and its text, locked by a passphrase if there is one.
func pair(t *testing.T, passphrase string) (ed25519.PrivateKey, string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	must(t, err)
	return key, string(pem.EncodeToMemory(block))
}

// agentOf is the socket of an SSH agent that has a key.
func agentOf(t *testing.T, key ed25519.PrivateKey) string {
	t.Helper()
	ring := agent.NewKeyring()
	must(t, ring.Add(agent.AddedKey{PrivateKey: key}))
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, c) }()
		}
	}()
	return socket
}

// TestKeys: a key is had from where its remote says, each time, for its owner alone, and by whom it is known is what
// signs.
func TestKeys(t *testing.T) {
	key, text := pair(t, "")
	_, locked := pair(t, "a passphrase")
	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	lockedFile := filepath.Join(t.TempDir(), "locked")
	must(t, os.WriteFile(lockedFile, []byte(locked), 0o600))
	me := fmt.Sprintf("uid:%d", os.Geteuid())
	g := Over(nil, Options{Secrets: store{me + " DEPLOY": text, me + " TOKEN": "tok-123456"}})
	for _, tt := range []struct {
		name, owner string
		key         sandbox.RemoteKey
		want        sandbox.Kind
	}{
		{"file", me, sandbox.RemoteKey{Provider: sandbox.KeyStatic, Path: file}, ""},
		{"agent", me, sandbox.RemoteKey{Provider: sandbox.KeyAgent, Path: agentOf(t, key)}, ""},
		{"secret", me, sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "DEPLOY"}, ""},
		{"another's secret", "uid:12345", sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "DEPLOY"}, sandbox.NotFound},
		{"a tenant's file", "key:k", sandbox.RemoteKey{Provider: sandbox.KeyStatic, Path: file}, sandbox.Denied},
		{"a tenant's agent", "key:k", sandbox.RemoteKey{Provider: sandbox.KeyAgent, Path: file}, sandbox.Denied},
		{"locked", me, sandbox.RemoteKey{Provider: sandbox.KeyStatic, Path: lockedFile}, sandbox.Invalid},
		{"no key", me, sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "TOKEN"}, sandbox.Invalid},
		{"gone", me, sandbox.RemoteKey{Provider: sandbox.KeyStatic, Path: file + "x"}, sandbox.Unavailable},
	} {
		k := keys{g, &sandbox.Sandbox{ID: "sb_a", Owner: tt.owner, Spec: sandbox.Spec{Remotes: []sandbox.Remote{{Name: "app", URL: "git@git.example:app.git", Key: tt.key}}}}}
		err := k.try(t.Context(), &k.sb.Spec.Remotes[0])
		if sandbox.KindOf(err) != tt.want || err != nil && strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: %v, want kind %q", tt.name, err, tt.want)
		}
		if err != nil {
			continue
		}
		signer, err := k.Signer(t.Context(), "app")
		must(t, err)
		sig, err := signer.Sign(nil, []byte("text"))
		must(t, err)
		public, err := ssh.NewPublicKey(key.Public())
		must(t, err)
		if err := public.Verify([]byte("text"), sig); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestCredential: a token goes out under the forge's name for it, and what has lines is none.
func TestCredential(t *testing.T) {
	_, text := pair(t, "")
	g := Over(nil, Options{Secrets: store{"uid:0 TOKEN": "tok-123456\n", "uid:0 DEPLOY": text}})
	for _, tt := range []struct {
		key  sandbox.RemoteKey
		want gitgate.Credential
		kind sandbox.Kind
	}{
		{sandbox.RemoteKey{}, gitgate.Credential{}, ""},
		{sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "TOKEN"}, gitgate.Credential{Username: "x-access-token", Password: "tok-123456"}, ""},
		{sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "TOKEN", Username: "oauth2"}, gitgate.Credential{Username: "oauth2", Password: "tok-123456"}, ""},
		{sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "DEPLOY"}, gitgate.Credential{}, sandbox.Invalid},
	} {
		k := keys{g, &sandbox.Sandbox{Owner: "uid:0", Spec: sandbox.Spec{Remotes: []sandbox.Remote{{Name: "app", URL: "https://git.example/app.git", Key: tt.key}}}}}
		if got, err := k.Credential(t.Context(), "app"); got != tt.want || sandbox.KindOf(err) != tt.kind {
			t.Errorf("%+v: %+v, %v", tt.key, got, err)
		}
	}
}

// TestOwn: what a sandbox may not push is what it may use now, and what its remotes are known by over HTTPS.
func TestOwn(t *testing.T) {
	g := Over(nil, Options{Secrets: store{"uid:0 TOKEN": "tok-123456", "uid:0 API": "api-123456", "uid:0 MORE": "more-123456"}})
	sb := &sandbox.Sandbox{Owner: "uid:0", Spec: sandbox.Spec{Secrets: []string{"API"}, Remotes: []sandbox.Remote{
		{Name: "app", URL: "https://git.example/app.git", Key: sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "TOKEN"}},
		{Name: "lib", URL: "git@git.example:lib.git", Key: sandbox.RemoteKey{Provider: sandbox.KeySecret, Name: "DEPLOY"}},
		{Name: "open", URL: "https://git.example/open.git"},
	}}}
	o := newOwn(keys{g, sb})
	for _, want := range []string{"API=api-123456 the key of app=tok-123456 ", "MORE=more-123456 the key of app=tok-123456 "} {
		all, err := o.known(t.Context())
		must(t, err)
		got := ""
		for _, k := range all {
			got += k.Name + "=" + string(k.Value) + " "
		}
		if got != want {
			t.Errorf("known %q, want %q", got, want)
		}
		now := sb.Clone()
		now.Spec.Secrets = []string{"MORE"}
		o.use(now)
	}
	o.use(&sandbox.Sandbox{Spec: sandbox.Spec{Secrets: []string{"GONE"}}})
	if _, err := o.known(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("one that can't be read: %v", err)
	}
}

// TestPublic: who may not open what is not public reaches no such address, whatever name leads there.
func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8:22": true, "[2606:4700::1111]:443": true,
		"127.0.0.1:22": false, "10.0.0.1:22": false, "169.254.169.254:80": false, "[::1]:22": false, "[::ffff:10.0.0.1]:22": false, "[fd00::1]:22": false,
	} {
		if err := public(t.Context(), "tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	g := Over(nil, Options{})
	for private, want := range map[bool]bool{true: true, false: false} {
		c, err := g.dialer(&sandbox.Sandbox{Spec: sandbox.Spec{RemotesPrivate: private}})(t.Context(), "tcp", l.Addr().String())
		if (err == nil) != want {
			t.Errorf("private %t: %v", private, err)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// TestQuestion: what a person is asked is bound to the objects: the same push is the same question, and another
// one is another, whatever stands in a line of it.
func TestQuestion(t *testing.T) {
	a := &asks{sb: &sandbox.Sandbox{Spec: sandbox.Spec{Remotes: []sandbox.Remote{{Name: "app", URL: "ssh://git@git.example/app.git"}}}}}
	one, two := strings.Repeat("1", 40), strings.Repeat("1", 39)+"2" // alike where people look
	push := func(id string) gitgate.Question {
		updates := []gitgate.Update{{Ref: "refs/heads/main", Old: strings.Repeat("0a", 20), New: id}}
		return gitgate.Question{Remote: "app", Updates: updates, Shown: updates}
	}
	about, first, err := a.question(push(one))
	must(t, err)
	if err := first.Check(); err != nil {
		t.Error(err)
	}
	_, again, err := a.question(push(one))
	must(t, err)
	_, other, err := a.question(push(two))
	must(t, err)
	if first != again || first == other || first.Target != other.Target {
		t.Errorf("questions:\n%+v\n%+v\n%+v", first, again, other)
	}
	hidden := push(one)
	hidden.Updates = []gitgate.Update{{Ref: "refs/heads/secret", New: one}}
	if about, q, err := a.question(hidden); err != nil || q.Push == first.Push || strings.Contains(fmt.Sprint(about, q), "secret") {
		t.Errorf("a name that is not shown: %+v, %+v, %v", about, q, err)
	}
	if about.Digest != first.Push || about.URL == "" || first.What() != "push app: main 0a0a0a0a0a0a..111111111111" {
		t.Errorf("%+v is %q", about, first.What())
	}
	var many gitgate.Question
	for i := range 40 {
		many.Updates = append(many.Updates, gitgate.Update{Ref: "refs/heads/" + strings.Repeat("x", 900) + fmt.Sprint(i), New: one})
	}
	many.Shown = many.Updates
	if _, q, err := a.question(many); err != nil || q.Check() == nil && !strings.Contains(q.Target, "more") {
		t.Errorf("many: %+v, %v", q, err)
	}
}
