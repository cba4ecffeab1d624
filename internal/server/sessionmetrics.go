package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carboy-sandbox/carboy/internal/session"
)

// sessionMetric is one figure of the runtime of sessions.
type sessionMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(session.Metrics) float64
}

func gauge(name, help string, of func(session.Metrics) int) sessionMetric {
	return sessionMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, func(m session.Metrics) float64 { return float64(of(m)) }}
}

func counter(name, help string, of func(session.Metrics) int64) sessionMetric {
	return sessionMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, func(m session.Metrics) float64 { return float64(of(m)) }}
}

// sessionMetrics are counted since the daemon started, of all owners.
var sessionMetrics = []sessionMetric{
	gauge("carboy_sessions", "Sessions that are there and do not sleep.", func(m session.Metrics) int { return m.Sessions }),
	gauge("carboy_sessions_asleep", "Sessions that sleep.", func(m session.Metrics) int { return m.Asleep }),
	gauge("carboy_session_processes", "Managed processes that run.", func(m session.Metrics) int { return m.Processes }),
	counter("carboy_sessions_created_total", "Sessions that were made.", func(m session.Metrics) int64 { return m.Created }),
	counter("carboy_sessions_reused_total", "Calls that found their session.", func(m session.Metrics) int64 { return m.Reused }),
	counter("carboy_sessions_replaced_total", "Sessions whose sandbox was made anew.", func(m session.Metrics) int64 { return m.Replaced }),
	counter("carboy_sessions_woken_total", "Sessions that were woken.", func(m session.Metrics) int64 { return m.Woken }),
	counter("carboy_sessions_slept_total", "Sessions that were put to sleep for being idle.", func(m session.Metrics) int64 { return m.Slept }),
	counter("carboy_sessions_reaped_total", "Sessions that were removed for being idle.", func(m session.Metrics) int64 { return m.Reaped }),
	counter("carboy_sessions_deleted_total", "Sessions that someone deleted.", func(m session.Metrics) int64 { return m.Deleted }),
	counter("carboy_session_execs_total", "Commands that were run.", func(m session.Metrics) int64 { return m.Execs }),
	counter("carboy_session_exec_errors_total", "Commands that could not be run.", func(m session.Metrics) int64 { return m.ExecErrors }),
	counter("carboy_session_timeouts_total", "Commands whose time was up.", func(m session.Metrics) int64 { return m.Timeouts }),
	counter("carboy_session_queue_timeouts_total", "Commands whose time was up before they ran.", func(m session.Metrics) int64 { return m.QueueTimeouts }),
	counter("carboy_session_processes_started_total", "Managed processes that were started.", func(m session.Metrics) int64 { return m.ProcessesStarted }),
	counter("carboy_session_tools_total", "Calls of native tools.", func(m session.Metrics) int64 { return m.Tools }),
	counter("carboy_session_tool_errors_total", "Calls of native tools that came to no result.", func(m session.Metrics) int64 { return m.ToolErrors }),
	counter("carboy_session_transfers_total", "Times that attachments were delivered or collected.", func(m session.Metrics) int64 { return m.Transfers }),
	counter("carboy_session_transfer_errors_total", "Times that they could not be.", func(m session.Metrics) int64 { return m.TransferErrors }),
	counter("carboy_session_processes_restored_total", "Managed processes of an earlier daemon that were found again.", func(m session.Metrics) int64 { return m.ProcessesRestored }),
	counter("carboy_session_conflicts_total", "Calls that wanted a session otherwise than it is.", func(m session.Metrics) int64 { return m.Conflicts }),
	counter("carboy_session_capacity_refusals_total", "Calls for which there was no room.", func(m session.Metrics) int64 { return m.CapacityRefusals }),
	counter("carboy_session_quota_stops_total", "Commands and processes that were stopped at their workspace's quota.", func(m session.Metrics) int64 { return m.QuotaStops }),
	counter("carboy_session_stdout_bytes_total", "Bytes that commands wrote to stdout.", func(m session.Metrics) int64 { return m.StdoutBytes }),
	counter("carboy_session_stderr_bytes_total", "Bytes that commands wrote to stderr.", func(m session.Metrics) int64 { return m.StderrBytes }),
	seconds("carboy_session_queue_seconds_total", "Time that commands waited for others of their session.", func(m session.Metrics) float64 { return m.QueueTime.Seconds() }),
	seconds("carboy_session_exec_seconds_total", "Time that commands took, waiting apart.", func(m session.Metrics) float64 { return m.ExecTime.Seconds() }),
}

func seconds(name, help string, of func(session.Metrics) float64) sessionMetric {
	return sessionMetric{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

// collectSessions tells administrators what the runtime of sessions counted.
func (c *collector) collectSessions(ch chan<- prometheus.Metric) {
	if c.sessions == nil || !c.caller.Admin {
		return
	}
	m := c.sessions()
	for _, s := range sessionMetrics {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.of(m))
	}
}
