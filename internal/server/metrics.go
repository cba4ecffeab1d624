package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// metricsLimit bounds the gathering of all metrics: a gate that hangs is left
// out.
const metricsLimit = 5 * time.Second

// metricsAPI is what is measured of a caller's own.
type metricsAPI struct {
	m interface {
		List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
		NetUse(ctx context.Context, c sandbox.Caller, ref string) (sandbox.NetUse, error)
	}
	sessions func() session.Metrics // nil: nothing was counted
	log      *slog.Logger
}

// serve answers in Prometheus' text format, of the caller's own sandboxes.
func (a metricsAPI) serve(w http.ResponseWriter, r *http.Request) {
	reg := prometheus.NewRegistry()
	ctx, cancel := context.WithTimeout(r.Context(), metricsLimit)
	defer cancel()
	if err := reg.Register(&collector{metricsAPI: a, ctx: ctx, caller: auth.Of(r).Caller}); err != nil {
		panic(err) // it describes itself wrongly
	}
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
}

// collector gathers metrics for one caller.
type collector struct {
	metricsAPI
	ctx    context.Context
	caller sandbox.Caller
}

// The metrics. A sandbox goes by its ID: names are chosen anew.
var (
	metricSandboxes = prometheus.NewDesc("carboy_sandboxes", "Sandboxes, by state.", []string{"state"}, nil)
	metricOpen      = prometheus.NewDesc("carboy_gate_connections", "Connections that are open through a sandbox's gate.",
		[]string{"sandbox"}, nil)
	metricTried = prometheus.NewDesc("carboy_gate_records_total", "What a sandbox tried to reach since its gate was started.",
		[]string{"sandbox", "protocol", "verdict", "code"}, nil)
	metricBytes = prometheus.NewDesc("carboy_gate_bytes_total", "Bytes that went through a sandbox's gate since it was started.",
		[]string{"sandbox", "protocol", "verdict", "code", "direction"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricSandboxes, metricOpen, metricTried, metricBytes} {
		ch <- d
	}
	for _, s := range sessionMetrics {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.collectSessions(ch)
	list, err := c.m.List(c.ctx, c.caller, sandbox.Filter{})
	if err != nil {
		ch <- prometheus.NewInvalidMetric(metricSandboxes, err)
		return
	}
	states := map[sandbox.State]float64{}
	for _, sb := range list {
		states[sb.State]++
		if sb.State == sandbox.StateRunning && sb.Spec.Networked() {
			c.gate(ch, sb)
		}
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(metricSandboxes, prometheus.GaugeValue, n, string(state))
	}
}

// gate tells what one gate counted; nothing of one that does not answer.
func (c *collector) gate(ch chan<- prometheus.Metric, sb *sandbox.Sandbox) {
	use, err := c.m.NetUse(c.ctx, c.caller, sb.ID)
	if err != nil {
		c.log.Warn("measure a gate", "id", sb.ID, "error", err)
		return
	}
	ch <- prometheus.MustNewConstMetric(metricOpen, prometheus.GaugeValue, float64(use.Connections), sb.ID)
	for _, n := range use.Counters {
		labels := []string{sb.ID, n.Protocol, n.Verdict, n.Code}
		ch <- prometheus.MustNewConstMetric(metricTried, prometheus.CounterValue, float64(n.Count), labels...)
		ch <- prometheus.MustNewConstMetric(metricBytes, prometheus.CounterValue, float64(n.Sent), append(labels, "sent")...)
		ch <- prometheus.MustNewConstMetric(metricBytes, prometheus.CounterValue, float64(n.Received), append(labels, "received")...)
	}
}
