package egress

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// slowSecrets has one secret, and lists as slowly as it is told to.
type slowSecrets struct {
	Secrets
	list func()

	mu    sync.Mutex
	asked []string
}

func (s *slowSecrets) List(context.Context, string) ([]secret.Info, error) {
	s.list()
	return nil, nil
}

func (s *slowSecrets) Value(_ context.Context, _, _, name string) (secret.Minted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
	return secret.Minted{Value: secret.NewValue([]byte("value-of-" + name))}, nil
}

func gatesWith(t *testing.T, s Secrets) *Gates {
	t.Helper()
	g, err := New(Options{State: t.TempDir(), Secrets: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Shut() })
	return g
}

func instanceOf(p policy.Policy) *sandbox.Sandbox {
	return &sandbox.Sandbox{ID: "sb", Owner: "uid:0", Spec: sandbox.Spec{Name: "web", Secrets: []string{"GIVEN"}, Policy: &p}}
}

func allowing(r policy.Rule) policy.Policy { return policy.Policy{Rules: []policy.Rule{r}} }

// TestGateGetsWhatItWasGiven: a gate that asks for another secret of the same
// owner is one that somebody else speaks for.
func TestGateGetsWhatItWasGiven(t *testing.T) {
	s := &slowSecrets{}
	g := gatesWith(t, s)
	one := &gate{id: "sb", sb: instanceOf(policy.Policy{})}
	if a := g.answer(t.Context(), one, "GIVEN"); a.Error != "" || a.Value.Text != "value-of-GIVEN" {
		t.Errorf("what it was given: %q", a.Error)
	}
	if a := g.answer(t.Context(), one, "OTHER"); a.Error == "" || a.Value.Text != "" {
		t.Error("it was told a secret that its sandbox was not given")
	}
	if len(s.asked) != 1 {
		t.Errorf("the store was asked for %q", s.asked)
	}
}

// TestChangeIsToldAgain: a gate that can't be told at once that a secret was
// taken back is told later.
func TestChangeIsToldAgain(t *testing.T) {
	g := gatesWith(t, &slowSecrets{list: func() {}})
	dir := t.TempDir()
	one := &gate{id: "sb", dir: dir, sb: instanceOf(allowing(policy.Rule{Hosts: []string{"a.example"}})), born: newBirth()}
	one.born.end(nil)
	g.gates["sb"] = one
	g.Changed(t.Context(), secret.Change{Owner: "uid:0", Name: "GIVEN", Removed: true}) // nobody listens yet
	if host := <-hear(t, dir); host != "a.example" {
		t.Errorf("told of %q", host)
	}
}

// hear is a gate's control socket that notes the host of each policy's first
// rule.
func hear(t *testing.T, dir string) chan string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, fileSocket))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 8)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var c config
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			t.Error(err)
			return
		}
		told <- c.Policy.Rules[0].Hosts[0]
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return told
}

// TestRecheckOfUnread: what is passed on unread does not outlive a policy that
// wants it read.
func TestRecheckOfUnread(t *testing.T) {
	to := netip.MustParseAddrPort("45.0.0.1:8443")
	tcp := policy.Rule{Addresses: []string{"45.0.0.1"}, Ports: []string{"8443"}, Protocol: policy.ProtocolTCP}
	web := policy.Rule{
		Addresses: tcp.Addresses, Ports: tcp.Ports,
		Matches: []policy.Match{{Methods: []string{"GET"}}},
	}
	for _, tt := range []struct {
		name string
		next policy.Policy
		cut  string
	}{
		{"same", allowing(tcp), ""},
		{"gone", policy.Policy{}, "not allowed"},
		{"to-be-read", allowing(web), "to be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &service{life: t.Context(), flows: relay.NewFlows(0, 0), meter: relay.NewMeter(time.Now)}
			s.probed.Store(true)
			set := func(p policy.Policy) {
				compiled, err := policy.Compile(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				s.set.Store(compiled)
			}
			set(allowing(tcp))
			f := s.open("tcp", policy.Conn{Addr: to})
			if f == nil {
				t.Fatal("it was not opened")
			}
			defer f.Close()
			set(tt.next)
			s.recheck()
			cause := context.Cause(f.Context())
			if (cause != nil) != (tt.cut != "") || cause != nil && !strings.Contains(cause.Error(), tt.cut) {
				t.Errorf("cut: %v", cause)
			}
		})
	}
}
