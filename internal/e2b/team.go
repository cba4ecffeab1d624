package e2b

import (
	"context"
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/node"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

const (
	// metricsBack is how far back metrics go where a request does not say.
	metricsBack = 7 * 24 * time.Hour
	// lastSecond is the latest time that a request may name: in the year 2299.
	lastSecond = 10_413_792_000
)

// Teams is what the paths of teams, keys, secrets and the machine work with.
// What is nil answers 501.
type Teams struct {
	auth.Tenants
	Secrets team.Secrets // what clients know of secrets
	Values  SecretValues // their values
	Node    *node.Node   // the machine
}

// SecretValues keeps the values of secrets. *secret.Store is one.
type SecretValues interface {
	Put(ctx context.Context, owner, name string, src secret.Source) (secret.Info, error)
	Rotate(ctx context.Context, owner, name string, src *secret.Source) (secret.Info, error)
	Remove(ctx context.Context, owner, name string, force bool) error
}

func (h *handler) teamRoutes() []route {
	read := func(c Caller) bool { return c.Read }
	manage := func(c Caller) bool { return c.Manage }
	keys := func(c Caller) bool { return c.Keys }
	anybody := func(Caller) bool { return true }
	return []route{
		{"GET /teams", anybody, h.teams},
		{"GET /teams/{id}/metrics?", read, h.teamMetrics},
		{"GET /teams/{id}/metrics/max?", read, h.teamMetricsMax},
		{"GET /api-keys", keys, h.listKeys},
		{"POST /api-keys", keys, h.makeKey},
		{"PATCH /api-keys/{id}", keys, h.renameKey},
		{"DELETE /api-keys/{id}", keys, h.deleteKey},
		{"POST /access-tokens", anybody, h.makeToken},
		{"DELETE /access-tokens/{id}", anybody, h.deleteToken},
		{"GET /secrets?", read, h.listSecrets},
		{"POST /secrets", manage, h.makeSecret},
		{"GET /secrets/{id}", read, h.getSecret},
		{"POST /secrets/{id}", manage, h.updateSecret},
		{"DELETE /secrets/{id}", manage, h.deleteSecret},
	}
}

// ownTeam refuses to act for a team that a request names besides its key, where
// that is not the key's own: it is never quietly the other one.
func ownTeam(c Caller, id string, kind sandbox.Kind) error {
	if id != "" && id != team.ID(c.Owner) {
		return sandbox.Errorf(kind, "team %.80q: not the team of this key, which is %s", id, team.ID(c.Owner))
	}
	return nil
}

func lacks(what string) error {
	return sandbox.Errorf(sandbox.Unsupported, "%s: this daemon keeps none", what)
}

// oneTeam is a team as its list has it.
type oneTeam struct {
	TeamID    string `json:"teamID"`
	Name      string `json:"name"`
	APIKey    string `json:"apiKey"`
	IsDefault bool   `json:"isDefault"`
}

// teams lists the caller's only team. The key is the caller's own, which it
// sent: E2B would make another one, for nobody to clear away.
func (h *handler) teams(w http.ResponseWriter, r *http.Request, c Caller) error {
	wire.JSON(w, http.StatusOK, []oneTeam{{
		TeamID: team.ID(c.Owner), Name: team.Name(c.Owner), APIKey: c.Presented, IsDefault: true,
	}})
	return nil
}

// teamMetric is a point of a team's metrics.
type teamMetric struct {
	Timestamp  time.Time `json:"timestamp"`
	Unix       int64     `json:"timestampUnix"`
	Concurrent int       `json:"concurrentSandboxes"`
	StartRate  float64   `json:"sandboxStartRate"`
}

// stretch reads of when a request wants to know, and refuses what is not of
// the caller's team.
func (h *handler) stretch(r *http.Request, c Caller, more ...string) (q params, from, to time.Time, err error) {
	if h.o.Teams.Book == nil {
		return nil, from, to, lacks("metrics")
	}
	if q, err = parse(r, append(more, "start", "end")...); err != nil {
		return nil, from, to, err
	}
	if err := ownTeam(c, r.PathValue("id"), sandbox.Denied); err != nil {
		return nil, from, to, err
	}
	now := h.now()
	start, err := q.number("start", int(now.Add(-metricsBack).Unix()), 0, lastSecond)
	if err != nil {
		return nil, from, to, err
	}
	end, err := q.number("end", int(now.Unix()), 0, lastSecond)
	if err == nil && start > end {
		err = sandbox.Errorf(sandbox.Invalid, "start: later than end")
	}
	return q, time.Unix(int64(start), 0), time.Unix(min(int64(end), now.Unix()), 0), err
}

func (h *handler) teamMetrics(w http.ResponseWriter, r *http.Request, c Caller) error {
	_, from, to, err := h.stretch(r, c)
	if err != nil {
		return err
	}
	out := []teamMetric{}
	for _, p := range h.o.Teams.Book.Metrics(c.Owner, from, to) {
		out = append(out, teamMetric{p.At, p.At.Unix(), p.Concurrent, p.StartRate})
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

func (h *handler) teamMetricsMax(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, from, to, err := h.stretch(r, c, "metric")
	if err != nil {
		return err
	}
	most := h.o.Teams.Book.MostConcurrent
	switch q.get("metric") {
	case "concurrent_sandboxes":
	case "sandbox_start_rate":
		most = h.o.Teams.Book.MostStarts
	default:
		return sandbox.Errorf(sandbox.Invalid, "metric: concurrent_sandboxes or sandbox_start_rate")
	}
	value, at := most(c.Owner, from, to)
	wire.JSON(w, http.StatusOK, struct {
		Timestamp time.Time `json:"timestamp"`
		Unix      int64     `json:"timestampUnix"`
		Value     float64   `json:"value"`
	}{at, at.Unix(), value})
	return nil
}
