package e2b

import (
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/meter"
)

// maxMetered is how many sandboxes one question for metrics may name.
const maxMetered = 100

// Meter has what sandboxes used. *meter.Meter is one.
type Meter interface {
	Samples(id string, from, to time.Time) []meter.Sample
	Last(id string) (meter.Sample, bool)
}

// metric is a sandbox's use at one time. Sizes are in bytes.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int32     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"` // of all that it may use
	MemUsed       int64     `json:"memUsed"`    // the file cache apart
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

func metricOf(s meter.Sample) metric {
	return metric{
		Timestamp: s.Time, TimestampUnix: s.Time.Unix(), CPUCount: cpuCount(s.CPUs), CPUUsedPct: s.CPU,
		MemUsed: s.Memory, MemTotal: s.MemoryTotal, MemCache: s.Cache, DiskUsed: s.Disk, DiskTotal: s.DiskTotal,
	}
}

// cpuCount is a number of processors, whole as E2B has them.
func cpuCount(n float64) int32 { return int32(max(1, math.Ceil(n))) }

// metered fails where nothing measures.
func (h *handler) metered() error {
	if h.o.Meter == nil {
		return sandbox.Errorf(sandbox.Unsupported, "metrics: this server does not measure")
	}
	return nil
}

// metrics answers with the last hour of one sandbox, or what start and end
// leave of it.
func (h *handler) metrics(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "start", "end")
	if err != nil {
		return err
	}
	from, err := q.seconds("start")
	if err != nil {
		return err
	}
	to, err := q.seconds("end")
	if err != nil {
		return err
	}
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return sandbox.Errorf(sandbox.Invalid, "end: it is before start")
	}
	if err := h.metered(); err != nil {
		return err
	}
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	out := []metric{}
	for _, s := range h.o.Meter.Samples(sb.ID, from, to) {
		out = append(out, metricOf(s))
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

// seconds reads a time in seconds since 1970; zero where it is absent.
func (p params) seconds(name string) (time.Time, error) {
	n, err := p.number(name, -1, 0, math.MaxInt32*16)
	if err != nil || n < 0 {
		return time.Time{}, err
	}
	return time.Unix(int64(n), 0), nil
}

// metricsOfMany answers with the newest point of each sandbox that is named.
// One that is not the caller's, or that was not measured yet, is left out.
func (h *handler) metricsOfMany(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "sandbox_ids")
	if err != nil {
		return err
	}
	text := q.get("sandbox_ids")
	ids := strings.Split(text, ",")
	if text == "" || len(ids) > maxMetered {
		return sandbox.Errorf(sandbox.Invalid, "sandbox_ids: 1 to %d IDs, with commas between them", maxMetered)
	}
	for _, id := range ids {
		if !sandbox.ValidID(id) {
			return sandbox.Errorf(sandbox.Invalid, "sandbox_ids: %.80q is no ID", id)
		}
	}
	if err := h.metered(); err != nil {
		return err
	}
	out := map[string]metric{}
	for _, id := range ids {
		sb, err := h.m.Get(r.Context(), c.Caller, id)
		if sandbox.KindOf(err) == sandbox.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if s, ok := h.o.Meter.Last(sb.ID); ok {
			out[id] = metricOf(s)
		}
	}
	wire.JSON(w, http.StatusOK, struct {
		Sandboxes map[string]metric `json:"sandboxes"`
	}{out})
	return nil
}
