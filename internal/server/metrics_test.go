package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (m *netManager) List(_ context.Context, c sandbox.Caller, _ sandbox.Filter) ([]*sandbox.Sandbox, error) {
	sb, err := m.find(c, "web")
	if err != nil {
		return nil, nil
	}
	sb.State = sandbox.StateRunning
	return []*sandbox.Sandbox{sb}, nil
}

// Whoever scrapes sees what gates counted, of sandboxes that are theirs.
func TestMetrics(t *testing.T) {
	w, m := netWorld(t)
	w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{"network":"on"}`})
	resp, body := w.do(t, request{method: "GET", path: "/v1/metrics"})
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("status %d, %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	for _, want := range []string{
		`carboy_sandboxes{state="running"} 1`,
		`carboy_gate_connections{sandbox="sb_web"} 3`,
		`carboy_gate_records_total{code="",protocol="https",sandbox="sb_web",verdict="allow"} 7`,
		`carboy_gate_records_total{code="not_allowed",protocol="dns",sandbox="sb_web",verdict="deny"} 2`,
		`carboy_gate_bytes_total{code="",direction="received",protocol="https",sandbox="sb_web",verdict="allow"} 13`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, body)
		}
	}
	m.owner = "uid:4711"
	if _, body := w.do(t, request{method: "GET", path: "/v1/metrics"}); strings.Contains(body, "sb_web") {
		t.Errorf("another's sandbox is told:\n%s", body)
	}
}
