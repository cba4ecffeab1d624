package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// username is by whom forges take a token.
const username = "x-access-token"

// agentTime bounds how long an agent may take to sign: it may ask a person.
const agentTime = time.Minute

// keys are those of one sandbox's remotes. It implements gitgate.Keys.
type keys struct {
	g  *Gates
	sb *sandbox.Sandbox
}

var _ gitgate.Keys = keys{}

func (k keys) remote(name string) (*sandbox.Remote, error) {
	for i := range k.sb.Spec.Remotes {
		if r := &k.sb.Spec.Remotes[i]; r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("there is no remote %.80q", name)
}

// try fails where the key of a remote can't be had.
func (k keys) try(ctx context.Context, r *sandbox.Remote) error {
	at, problem := gitremote.Parse(r.URL)
	if problem != "" {
		return sandbox.Errorf(sandbox.Invalid, "remote %s: its URL: %s", r.Name, problem)
	}
	var err error
	if at.SSH {
		_, err = k.Signer(ctx, r.Name)
	} else {
		_, err = k.Credential(ctx, r.Name)
	}
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok {
		return fmt.Errorf("remote %s: its key: %w", r.Name, err)
	}
	return sandbox.Errorf(e.Kind, "remote %s: its key: %w", r.Name, err).WithHint("%s", e.Hint)
}

// text is what a file or a secret has.
func (k keys) text(ctx context.Context, r *sandbox.Remote) (secret.Value, error) {
	if r.Key.Provider == sandbox.KeyStatic {
		return secret.ReadFile(k.sb.Owner, r.Key.Path)
	}
	m, err := k.g.o.Secrets.ForRemote(ctx, k.sb.Owner, k.sb.ID, r.Key.Name)
	return m.Value, err
}

// Signer implements gitgate.Keys.
func (k keys) Signer(ctx context.Context, name string) (ssh.Signer, error) {
	r, err := k.remote(name)
	if err != nil {
		return nil, err
	}
	if r.Key.Provider == sandbox.KeyAgent {
		return k.ofAgent(ctx, r.Key.Path)
	}
	v, err := k.text(ctx, r)
	if err != nil {
		return nil, err
	}
	defer v.Wipe()
	text := []byte(v.Reveal())
	defer clear(text)
	signer, err := ssh.ParsePrivateKey(text)
	if errors.As(err, new(*ssh.PassphraseMissingError)) {
		return nil, sandbox.Errorf(sandbox.Invalid, "it is locked by a passphrase, for which nobody can be asked").
			WithHint("name an SSH agent that has it: {provider: %s, path: SOCKET}", sandbox.KeyAgent)
	}
	if err != nil { // whose text may repeat some of it
		return nil, sandbox.Errorf(sandbox.Invalid, "it is no private key of SSH").WithHint("as ssh-keygen -t ed25519 writes one")
	}
	return signer, nil
}

// Credential implements gitgate.Keys.
func (k keys) Credential(ctx context.Context, name string) (gitgate.Credential, error) {
	r, err := k.remote(name)
	if err != nil || r.Key.Provider == "" {
		return gitgate.Credential{}, err
	}
	v, err := k.text(ctx, r)
	if err != nil {
		return gitgate.Credential{}, err
	}
	defer v.Wipe()
	password := strings.TrimRight(v.Reveal(), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return gitgate.Credential{}, sandbox.Errorf(sandbox.Invalid, "it is no token or password, of one line")
	}
	return gitgate.Credential{Username: cmp.Or(r.Key.Username, username), Password: password}, nil
}

// ofAgent is the first key of an agent. No connection to it is kept.
func (k keys) ofAgent(ctx context.Context, socket string) (ssh.Signer, error) {
	var first *agent.Key
	err := k.withAgent(ctx, socket, func(a agent.Agent) error {
		all, err := a.List()
		if err == nil && len(all) == 0 {
			err = sandbox.Errorf(sandbox.Unavailable, "the SSH agent has no key").WithHint("ssh-add")
		}
		if err == nil {
			first = all[0]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return agentSigner{k, socket, first}, nil
}

func (k keys) withAgent(ctx context.Context, socket string, do func(agent.Agent) error) error {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	c, err := secret.Dial(ctx, k.sb.Owner, socket)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it has answered
	if until, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(until); err != nil {
			return err
		}
	}
	return do(agent.NewClient(c))
}

// agentSigner has an agent sign, to which it connects each time.
type agentSigner struct {
	keys   keys
	socket string
	key    *agent.Key
}

var _ ssh.AlgorithmSigner = agentSigner{}

// PublicKey implements ssh.Signer.
func (s agentSigner) PublicKey() ssh.PublicKey { return s.key }

// Sign implements ssh.Signer.
func (s agentSigner) Sign(_ io.Reader, data []byte) (*ssh.Signature, error) {
	return s.sign(data, 0)
}

// SignWithAlgorithm implements ssh.AlgorithmSigner.
func (s agentSigner) SignWithAlgorithm(_ io.Reader, data []byte, algorithm string) (*ssh.Signature, error) {
	flags := map[string]agent.SignatureFlags{ssh.KeyAlgoRSASHA256: agent.SignatureFlagRsaSha256, ssh.KeyAlgoRSASHA512: agent.SignatureFlagRsaSha512}
	return s.sign(data, flags[algorithm])
}

func (s agentSigner) sign(data []byte, flags agent.SignatureFlags) (sig *ssh.Signature, err error) {
	err = s.keys.withAgent(context.Background(), s.socket, func(a agent.Agent) error {
		x, ok := a.(agent.ExtendedAgent)
		if !ok {
			return errors.New("the SSH agent is none that signs so")
		}
		sig, err = x.SignWithFlags(s.key, data, flags)
		return err
	})
	return sig, err
}

// nothing is a policy that opens no address that is closed by itself.
var nothing = sync.OnceValues(func() (*policy.Set, error) { return policy.Compile(policy.Policy{}, nil) })

// public refuses addresses that are not, as they are connected to.
func public(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	set, err := nothing()
	if err != nil {
		return err
	}
	own, err := netspec.OwnAddresses()
	if err != nil {
		return err
	}
	if v := set.Closing(func(a netip.Addr) bool { return own[a] }).Address(at.Addr()); !v.Allowed() {
		return sandbox.Errorf(sandbox.Denied, "its address is not public, and this sandbox's remotes have to be")
	}
	return nil
}
