package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/server"
)

// A parameter that a route does not know is an error, and nothing is done.
func TestUnknownParameters(t *testing.T) {
	w := newEstate(t, func(*server.Options) {})
	before := w.state(t)
	for _, p := range routesOfCode(t) {
		a := routesOfTeams[p]
		if strings.Contains(p, "/guest/") || a.own == http.StatusNotImplemented {
			continue // the guest's own; there is nothing to ask here
		}
		if a.path == "" {
			_, a.path, _ = strings.Cut(p, " ")
		}
		sep := "?"
		if strings.Contains(a.path, "?") {
			sep = "&"
		}
		a.path += sep + "forse=1"
		if a.body == "" && p == "POST /v1/skills" {
			continue // archives alone
		}
		var header []string
		if a.scope == adminOnly {
			header = []string{"X-Admin-Token", w.keys["admin"], "X-API-KEY", w.keys["admin"]}
		}
		if got, body := w.asks(t, p, a, "ours", header...); got != http.StatusBadRequest || !strings.Contains(body, "no such parameter") {
			t.Errorf("%s = %d %s, want 400 and that there is no such parameter", p, got, body)
		}
	}
	if after := w.state(t); after != before {
		t.Errorf("refused requests changed what the team has:\n%s\nand now:\n%s", before, after)
	}
}
