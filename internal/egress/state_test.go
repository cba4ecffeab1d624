package egress

import (
	"crypto/rand"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestState(t *testing.T) {
	dir := t.TempDir()
	if got, err := load(dir); err != nil || !cmp.Equal(got, state{}) {
		t.Errorf("of none: %+v, %v", got, err)
	}
	self, err := procid.Self()
	if err != nil {
		t.Fatal(err)
	}
	want := state{
		Placeholders: map[string]string{"A": "a"}, Cert: "c", Key: "k", Process: self, Groups: []string{"/g/cgroup.procs"},
	}
	for range 2 { // it replaces what was there
		if err := want.save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := load(dir)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v (-saved +loaded):\n%s", err, d)
		}
		want.Groups = nil
	}
	st, err := os.Stat(filepath.Join(dir, fileState))
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v: others can read the key of a CA", st.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileState), []byte(`{"cert": "c"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := load(dir); err == nil {
		t.Errorf("of one that was cut short: %+v", got)
	}
}

func TestPlaceholdersStay(t *testing.T) {
	var s state
	for range 2 {
		before := s.Placeholders["A"]
		if err := s.placeholders([]string{"A", "B"}); err != nil {
			t.Fatal(err)
		}
		if p := s.Placeholders["A"]; p == "" || p == s.Placeholders["B"] || before != "" && p != before {
			t.Errorf("placeholders: %v, before %q", s.Placeholders, before)
		}
	}
}

func TestDirectory(t *testing.T) {
	g := &Gates{opts: Options{State: "/state"}}
	for id, ok := range map[string]bool{
		"sb_0123456789abcdefghij": true, "a": true,
		"": false, ".": false, "..": false, "../x": false, "a/b": false, "A": false, "a\x00": false, "a\n": false,
		strings.Repeat("a", 65): false,
	} {
		dir, err := g.dir(id)
		if (err == nil) != ok || ok && dir != "/state/gates/"+id || !ok && sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("dir(%q) = %q, %v", id, dir, err)
		}
	}
}

func TestGatesListsItsOwn(t *testing.T) {
	state := t.TempDir()
	g := &Gates{opts: Options{State: state, Secrets: &fakeSecrets{}}}
	if ids, err := g.Gates(t.Context()); len(ids) != 0 || err != nil {
		t.Errorf("of none: %v, %v", ids, err)
	}
	for _, name := range []string{"sb_b", "sb_a", "Lost+Found", "..x"} {
		if err := os.MkdirAll(filepath.Join(state, "gates", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g.opts.Secrets = &fakeSecrets{left: []string{"sb_b", "sb_c"}} // of which nothing else is there
	ids, err := g.Gates(t.Context())
	slices.Sort(ids)
	if !slices.Equal(ids, []string{"sb_a", "sb_b", "sb_c"}) || err != nil {
		t.Errorf("gates: %v, %v", ids, err)
	}
}

// TestUIDs: nobody's, always the same, and hardly ever shared.
func TestUIDs(t *testing.T) {
	seen := map[uint32]bool{}
	const n = 2000
	for range n {
		id, err := sandbox.NewID(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		uid := uidOf(id)
		if uid < firstUID || uid >= firstUID+uidCount || uid != uidOf(id) {
			t.Fatalf("uid of %s: %d", id, uid)
		}
		seen[uid] = true
	}
	if len(seen) < n-5 {
		t.Errorf("%d sandboxes have %d uids", n, len(seen))
	}
	if last := uint64(firstUID) + uidCount; last > 1_879_048_191 {
		t.Errorf("they go up to %d, beyond what is kept for containers", last)
	}
}

// TestAttempts: what a policy opens is not tried, and all else is.
func TestAttempts(t *testing.T) {
	host := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4711"), netip.MustParseAddrPort("[::1]:4711")}
	all := []string{
		"gate", "resolver", "resolver-v6", "direct-address", "direct-address-v6", "direct-datagram", "other-resolver",
		"other-resolver-tcp", "other-resolver-v6", "metadata", "metadata-v6", "gate-other-port", "host-0", "host-1", "raw",
	}
	rule := func(protocol policy.Protocol, port string, addrs ...string) policy.Policy {
		return policy.Policy{Rules: []policy.Rule{{Addresses: addrs, Ports: []string{port}, Protocol: protocol}}}
	}
	tests := []struct {
		name  string
		p     policy.Policy
		opens []string
	}{
		{"nothing", policy.Policy{}, nil},
		{"a-host", policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example"}}}}, nil},
		{"public", policy.Policy{Default: policy.DefaultPublic}, nil},
		{"a-resolver", rule(policy.ProtocolUDP, "53", "8.8.8.8"), []string{"other-resolver"}},
		{"a-resolver-over-tcp", rule(policy.ProtocolTCP, "53", "8.8.8.8"), []string{"other-resolver-tcp"}},
		{"metadata", rule(policy.ProtocolHTTP, "80", "169.254.169.254"), []string{"metadata"}},
		{"the-host", rule(policy.ProtocolTCP, "4711", "127.0.0.1"), []string{"host-0"}},
		{"an-address", rule(policy.ProtocolTCP, "443", "198.51.100.1"), []string{"direct-address"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list, err := attempts(sandbox.Spec{Policy: &tt.p}, host)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range list {
				got = append(got, a.Name)
				mustWork := slices.Contains([]string{"gate", "resolver", "resolver-v6"}, a.Name)
				if (a.Want == guest.WantOpen) != mustWork {
					t.Errorf("%s is wanted %s", a.Name, a.Want)
				}
			}
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(tt.opens, name) })
			slices.Sort(got)
			slices.Sort(want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("tried (-want +got):\n%s", d)
			}
		})
	}
}
