package e2b

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

const (
	maxRefresh = time.Hour
	maxLogs    = 1000
	maxSearch  = 256
)

func (h *handler) remove(w http.ResponseWriter, r *http.Request, c Caller) error {
	sb, err := h.find(r, c)
	if err == nil {
		err = h.m.Remove(r.Context(), c.Caller, sb.ID, true)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (h *handler) timeout(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Timeout *int32 `json:"timeout"`
	}
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	if req.Timeout == nil {
		return sandbox.Errorf(sandbox.Invalid, "timeout: it is missing")
	}
	ttl, err := seconds("timeout", req.Timeout, 0)
	if err != nil {
		return err
	}
	sb, err := h.find(r, c)
	if err == nil {
		_, err = h.m.SetTTL(r.Context(), c.Caller, sb.ID, ttl)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (h *handler) refresh(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req struct {
		Duration *int32 `json:"duration"`
	}
	if err := wire.Decode(r, &req, true); err != nil {
		return err
	}
	ttl, err := seconds("duration", req.Duration, defaultTimeoutV1)
	if err != nil {
		return err
	}
	if ttl > maxRefresh {
		return sandbox.Errorf(sandbox.Invalid, "duration: from 0 to %d seconds", int(maxRefresh.Seconds()))
	}
	sb, err := h.find(r, c)
	if err == nil {
		_, err = h.extend(r, c, sb, ttl)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// extend gives a sandbox at least ttl from now; it takes none away.
func (h *handler) extend(r *http.Request, c Caller, sb *sandbox.Sandbox, ttl time.Duration) (*sandbox.Sandbox, error) {
	if sb.ExpiresAt.IsZero() || sb.ExpiresAt.After(h.now().Add(ttl)) {
		return sb, nil
	}
	return h.m.SetTTL(r.Context(), c.Caller, sb.ID, ttl)
}

// connect returns how to reach a sandbox, and starts it where it is stopped.
// The first form of the call needs a body.
func (h *handler) connect(v1 bool) func(http.ResponseWriter, *http.Request, Caller) error {
	return func(w http.ResponseWriter, r *http.Request, c Caller) error {
		var req struct {
			Timeout *int32 `json:"timeout"`
			// Whether memory is to be restored. A stopped sandbox has none.
			Memory *bool `json:"memory"`
		}
		if err := wire.Decode(r, &req, !v1); err != nil {
			return err
		}
		if v1 && (req.Timeout == nil || req.Memory != nil) {
			return sandbox.Errorf(sandbox.Invalid, "timeout: it is needed, and nothing else is known")
		}
		ttl, err := seconds("timeout", req.Timeout, defaultTimeoutV2)
		if err != nil {
			return err
		}
		sb, err := h.find(r, c)
		if err != nil {
			return err
		}
		status := http.StatusOK
		if stateOf(sb) == statePaused {
			status = http.StatusCreated
			if sb, err = h.m.Start(r.Context(), c.Caller, sb.ID); err != nil {
				return err
			}
		}
		if sb, err = h.extend(r, c, sb, ttl); err != nil {
			return err
		}
		wire.JSON(w, status, h.created(sb, c))
		return nil
	}
}

// logLine and logEntry are a sandbox's log, plain and structured.
type logLine struct {
	Timestamp time.Time `json:"timestamp"`
	Line      string    `json:"line"`
}

type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Level     string            `json:"level"`
	Message   string            `json:"message"`
	Fields    map[string]string `json:"fields"`
}

func (h *handler) logsV1(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "start", "limit")
	if err != nil {
		return err
	}
	entries, err := h.entries(r, c, q, "start", 1<<31-1)
	if err != nil {
		return err
	}
	lines := make([]logLine, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, logLine{e.Timestamp, e.Message})
	}
	wire.JSON(w, http.StatusOK, struct {
		Logs    []logLine  `json:"logs"`
		Entries []logEntry `json:"logEntries"`
	}{lines, entries})
	return nil
}

func (h *handler) logsV2(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := parse(r, "cursor", "limit", "direction", "level", "search")
	if err != nil {
		return err
	}
	entries, err := h.entries(r, c, q, "cursor", maxLogs)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, struct {
		Logs []logEntry `json:"logs"`
	}{entries})
	return nil
}

var levels = []string{"debug", "info", "warn", "error"}

// entries reads a sandbox's log as q selects it. The parameter named from is
// the time, in milliseconds, at which it begins.
func (h *handler) entries(r *http.Request, c Caller, q params, from string, maxLimit int) ([]logEntry, error) {
	limit, err := q.number("limit", maxLogs, 0, maxLimit)
	if err != nil {
		return nil, err
	}
	begin, err := q.number(from, -1, 0, 1<<62)
	if err != nil {
		return nil, err
	}
	backward, search, level := q.get("direction") == "backward", q.get("search"), slices.Index(levels, q.get("level"))
	if d := q.get("direction"); d != "" && d != "forward" && !backward {
		return nil, sandbox.Errorf(sandbox.Invalid, "direction: forward or backward")
	}
	if level < 0 && q.get("level") != "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "level: one of %s", strings.Join(levels, ", "))
	}
	if len(search) > maxSearch {
		return nil, sandbox.Errorf(sandbox.Invalid, "search: longer than %d bytes", maxSearch)
	}
	sb, err := h.find(r, c)
	if err != nil {
		return nil, err
	}
	events, err := h.m.Events(r.Context(), c.Caller, sb.ID)
	if err != nil {
		return nil, err
	}
	if backward {
		slices.Reverse(events)
	}
	out := []logEntry{}
	for _, ev := range events {
		e := logEntry{ev.Time, "info", ev.Message, map[string]string{"type": ev.Type}}
		if ev.Type == sandbox.EventError {
			e.Level = "error"
		}
		ms := ev.Time.UnixMilli()
		outside := begin >= 0 && (!backward && ms < int64(begin) || backward && ms > int64(begin))
		if outside || slices.Index(levels, e.Level) < level || !strings.Contains(e.Message, search) {
			continue
		}
		if len(out) == limit {
			break
		}
		out = append(out, e)
	}
	return out, nil
}
