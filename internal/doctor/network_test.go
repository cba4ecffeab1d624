package doctor_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fakeGate starts no gate, and keeps what it was asked to do.
type fakeGate struct {
	checkErr, openErr, verifyErr error

	mu    sync.Mutex
	asked []string
	gates []string
}

var _ doctor.Gate = (*fakeGate)(nil)

func (f *fakeGate) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
}

func (f *fakeGate) Check(_ context.Context, spec sandbox.Spec) (sandbox.Enforcement, error) {
	if spec.Network != sandbox.NetworkPolicy || spec.Policy == nil {
		return sandbox.Enforcement{}, errors.New("not a policy that allows nothing")
	}
	return sandbox.Enforcement{}, f.checkErr
}

func (f *fakeGate) Open(_ context.Context, sb *sandbox.Sandbox, _ sandbox.LinkForm, _ sandbox.SecretValues) (*sandbox.Link, error) {
	f.note("open")
	f.mu.Lock()
	f.gates = append(f.gates, sb.ID)
	f.mu.Unlock()
	if f.openErr != nil {
		return nil, f.openErr
	}
	return &sandbox.Link{Hostname: "gate"}, nil
}

func (f *fakeGate) Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	f.note("verify")
	if sb.Link == nil {
		return nil, errors.New("the instance has no link")
	}
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.Close(), f.verifyErr); err != nil {
		return nil, err
	}
	return []sandbox.Enforcement{{Promise: "network", Enforced: true, Mechanism: "policy: a fake; 3 of 3"}}, nil
}

func (f *fakeGate) Close(context.Context, string) error {
	f.note("close")
	return nil
}

func (f *fakeGate) Remove(_ context.Context, id string) error {
	f.note("remove")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates = slices.DeleteFunc(f.gates, func(g string) bool { return g == id })
	return nil
}

func (f *fakeGate) Gates(context.Context) ([]string, error) { return slices.Clone(f.gates), nil }

func (f *fakeGate) Shut() error {
	f.note("shut")
	return nil
}

func TestNetworks(t *testing.T) {
	refused := sandbox.Errorf(sandbox.Unsupported, "not on this machine").WithHint("load a module")
	whole := "open verify close remove shut"
	tests := []struct {
		name        string
		wall        *fakeWall
		gate        *fakeGate
		state       doctor.State
		found, mend string
		asked       string
	}{
		{"kept", &fakeWall{}, &fakeGate{}, doctor.OK, "started a sandbox with one: a fake; 3 of 3", "", whole},
		{"not-promised", &fakeWall{}, &fakeGate{checkErr: refused}, doctor.Missing, "not on this machine", "load a module", "shut"},
		{"not-promised-and-no-wall", &fakeWall{openErr: refused}, &fakeGate{checkErr: refused}, doctor.Missing, "not on this machine", "load a module", "shut"},
		{"no-link", &fakeWall{}, &fakeGate{openErr: errors.New("no TAP")}, doctor.Missing, "no TAP", "--report", "open close remove shut"},
		{"promise-not-kept", &fakeWall{}, &fakeGate{verifyErr: errors.New("metadata answered")}, doctor.Missing, "metadata answered", "--report", whole},
		{"no-wall", &fakeWall{openErr: refused}, &fakeGate{}, doctor.Missing, "not tried", "see strong above", "shut"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.wall.name = "strong"
			o := anywhere(t)
			o.Walls = []doctor.Wall{tt.wall.wall()}
			o.Gate = func(string) (doctor.Gate, error) { return tt.gate, nil }
			r, err := doctor.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(r.Lines, func(l doctor.Line) bool { return l.ID == "network-strong" })
			if i < 0 {
				t.Fatalf("no line of it: %+v", r.Lines)
			}
			got := r.Lines[i]
			if got.State != tt.state || !strings.Contains(got.Found, tt.found) || !strings.Contains(got.Mend, tt.mend) || (got.State == doctor.OK) != (got.Why == "") {
				t.Errorf("got %+v\nwant %s, found %q, mended by %q", got, tt.state, tt.found, tt.mend)
			}
			if asked := strings.Join(tt.gate.asked, " "); asked != tt.asked {
				t.Errorf("asked the gate to %q, want %q", asked, tt.asked)
			}
			if len(tt.wall.instances)+len(tt.gate.gates) > 0 {
				t.Errorf("left: instances %q, gates %q", tt.wall.instances, tt.gate.gates)
			}
		})
	}
}

// TestSweepEndsGates ends the gates of a run that was killed, in the directory
// in which it had them.
func TestSweepEndsGates(t *testing.T) {
	o := anywhere(t)
	f, g := fakeWall{name: "strong"}, fakeGate{gates: []string{"doctor_old"}}
	o.Walls = []doctor.Wall{f.wall()}
	at := ""
	o.Gate = func(state string) (doctor.Gate, error) {
		at = state
		return &g, nil
	}
	old := filepath.Join(o.Dirs.State, ".carboy-doctor-1", "gates-strong")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	_, remove, err := doctor.Scratch(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = remove() }()
	if len(g.gates) > 0 || at != old || strings.Join(g.asked, " ") != "close remove shut" {
		t.Errorf("in %s: left %q, asked to %q", at, g.gates, g.asked)
	}
}

// TestIPv6 looks for a way out of a network without one, and of one with it.
func TestIPv6(t *testing.T) {
	o := place(t, 0)
	none := world{flags: syscall.CLONE_NEWNET, opts: o}.check(t, "ipv6")[0]
	if none.State != doctor.Info || !strings.Contains(none.Found, "IPv4 addresses alone") {
		t.Errorf("without one: %+v", none)
	}
	some := world{flags: syscall.CLONE_NEWNET, lay: []string{"route6"}, opts: o}.check(t, "ipv6")[0]
	if some.State != doctor.OK {
		t.Errorf("with one: %+v", some)
	}
}
