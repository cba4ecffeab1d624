package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fakeNet is what a fake sandbox reaches: nothing, but it has records.
type fakeNet struct {
	policy api.Policy
	values map[string]api.SecretValue // of the secrets that came with it
}

// netRoutes are the fake's policies, records and secrets.
func (d *fakeDaemon) netRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/sandboxes/{id}/policy":       d.getPolicy,
		"PUT /v1/sandboxes/{id}/policy":       d.putPolicy,
		"POST /v1/sandboxes/{id}/policy/test": d.testPolicy,
		"GET /v1/sandboxes/{id}/netlog":       d.netLog,
		"GET /v1/secrets":                     d.listSecrets,
		"POST /v1/secrets":                    d.addSecret,
		"DELETE /v1/secrets/{name}":           d.removeSecret,
		"POST /v1/secrets/{name}/rotate":      d.rotateSecret,
		"GET /fake/last":                      d.last,
	}
}

// network gives a sandbox what its create said of it.
func (b *fakeBox) network(req *api.CreateRequest) {
	if req.Network != "" {
		b.Network = req.Network
	}
	if req.Policy != nil {
		b.net.policy = *req.Policy
	}
	b.net.values = map[string]api.SecretValue{}
	for _, s := range req.Secrets {
		b.Secrets = append(b.Secrets, s.Name)
		if s.Value != nil {
			b.net.values[s.Name] = *s.Value
		}
	}
}

// last answers with the last create that came, values and all: only what a
// daemon learns can tell that it was sent what was meant.
func (d *fakeDaemon) last(w http.ResponseWriter, _ *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return answer(w, d.create[len(d.create)-1])
}

func (d *fakeDaemon) getPolicy(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return answer(w, b.net.policy)
}

func (d *fakeDaemon) putPolicy(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	var p api.Policy
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.Network == "off" {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it has no network", b.Name).WithHint("carboy set %s --allow HOST", b.Name)
	}
	if r.URL.Query().Get("add") == "1" {
		if p, err = addTo(b.net.policy, p); err != nil {
			return err
		}
	}
	b.net.policy = p
	return answer(w, b.Sandbox)
}

// addTo adds rules as the daemon does.
func addTo(old, more api.Policy) (api.Policy, error) {
	p, err := policy.Add(old, more)
	if err != nil {
		return p, sandbox.Errorf(sandbox.Invalid, "policy: %w", err)
	}
	_, err = policy.Compile(p, nil)
	return p, sandbox.PolicyError("policy", err)
}

func (d *fakeDaemon) testPolicy(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.box(r); err != nil {
		return err
	}
	var req api.PolicyTestRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	if strings.Contains(req.Request, "evil") {
		return answer(w, api.PolicyVerdict{
			Request: req.Request, Code: "not_allowed", Reason: "evil.example is \x1b[31mnot allowed",
			Steps: []api.PolicyStep{{Question: "resolve it", Mode: "refuse", Code: "not_allowed"}},
		})
	}
	return answer(w, api.PolicyVerdict{
		Request: req.Request, Allowed: true, Rule: "good", Reason: "rule good allows it", Secrets: []string{"TOKEN"},
		Steps: []api.PolicyStep{{Question: "resolve it", Mode: "allow", Rule: "good"}, {Question: "send it", Mode: "allow", Rule: "good"}},
	})
}

// fakeRecords are what every sandbox with a network tried. The last two are
// there where it has the label denied alone.
var fakeRecords = []api.NetRecord{
	{Verdict: "allow", Protocol: "dns", Method: "A", Host: "good.example", Rule: "good", Result: "NOERROR 192.0.2.1"},
	{
		Verdict: "allow", Protocol: "https", Method: "GET", Host: "good.example", Address: "192.0.2.1:443", Path: "/a\x1b[2Jb",
		Rule: "good", Status: 200, Received: 3 << 20, Secrets: []string{"TOKEN"},
	},
	{Verdict: "deny", Protocol: "dns", Method: "A", Host: "evil.example", Code: "not_allowed", Reason: "no rule is about it", Count: 3},
	{Verdict: "deny", Protocol: "https", Method: "POST", Host: "evil.example", Address: "192.0.0.3:443", Path: "/x", Code: "not_allowed", Reason: "no rule is about it", Status: 403},
}

func (d *fakeDaemon) netLog(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	recs := fakeRecords
	if b.Labels["denied"] == "" {
		recs = recs[:2]
	}
	for i, rec := range recs {
		rec.Seq, rec.Time, rec.Sandbox = uint64(i+1), created.Add(time.Duration(i)*time.Second), b.ID
		if r.URL.Query().Get("denied") == "1" && rec.Verdict != "deny" {
			continue
		}
		if err := answer(w, rec); err != nil {
			return err
		}
	}
	return nil
}

// fakeSecret is one of the daemon's own.
type fakeSecret struct {
	api.Secret
	value api.SecretValue
}

func (d *fakeDaemon) listSecrets(w http.ResponseWriter, _ *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []api.Secret{}
	for _, s := range d.secrets {
		out = append(out, s.Secret)
	}
	return answer(w, out)
}

func (d *fakeDaemon) findSecretLocked(name string) int {
	return slices.IndexFunc(d.secrets, func(s fakeSecret) bool { return s.Name == name })
}

func readFakeSecret(r io.Reader) (fakeSecret, error) {
	var req api.SecretRequest
	if err := json.NewDecoder(r).Decode(&req); err != nil {
		return fakeSecret{}, err
	}
	s := fakeSecret{Secret: api.Secret{Name: req.Name, Source: "value", File: req.File, Command: req.Command, TTLMillis: req.TTLMillis, CreatedAt: created}}
	switch {
	case req.Value != nil:
		s.value = *req.Value
	case req.File != "":
		s.Source = "file"
	case len(req.Command) > 0:
		s.Source = "command"
	default:
		s.Source = ""
	}
	return s, nil
}

func (d *fakeDaemon) addSecret(w http.ResponseWriter, r *http.Request) error {
	s, err := readFakeSecret(r.Body)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.findSecretLocked(s.Name); i >= 0 {
		s.RotatedAt = created.Add(30 * time.Minute)
		d.secrets = slices.Delete(d.secrets, i, i+1)
	}
	if strings.HasSuffix(string(s.value), "\t") {
		s.Notes = []string{"it ends in a \x1b tab"}
	}
	d.secrets = append(d.secrets, s)
	return answer(w, s.Secret)
}

func (d *fakeDaemon) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	s, err := readFakeSecret(r.Body)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.findSecretLocked(r.PathValue("name"))
	if i < 0 {
		return sandbox.Errorf(sandbox.NotFound, "secret %s: not found", r.PathValue("name"))
	}
	old := &d.secrets[i]
	if s.Source != "" {
		s.Name = old.Name
		*old = s
	}
	old.RotatedAt = created.Add(30 * time.Minute)
	return answer(w, old.Secret)
}

func (d *fakeDaemon) removeSecret(_ http.ResponseWriter, r *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.findSecretLocked(r.PathValue("name"))
	if i < 0 {
		return sandbox.Errorf(sandbox.NotFound, "secret %s: not found", r.PathValue("name"))
	}
	if d.secrets[i].Name == "USED" && r.URL.Query().Get("force") != "1" {
		return sandbox.Errorf(sandbox.Conflict, "secret USED is used by sandbox web").WithHint("carboy secret rm --force USED")
	}
	d.secrets = slices.Delete(d.secrets, i, i+1)
	return nil
}

// secretValue is what the daemon was sent for a secret.
func (d *fakeDaemon) secretValue(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := d.findSecretLocked(name); i >= 0 {
		return string(d.secrets[i].value)
	}
	return ""
}
