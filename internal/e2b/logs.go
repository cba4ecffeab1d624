package e2b

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

const (
	maxLogs   = 1000
	maxSearch = 256
)

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
		lines = append(lines, e.line())
	}
	wire.JSON(w, http.StatusOK, struct {
		Logs    []logLine  `json:"logs"`
		Entries []logEntry `json:"logEntries"`
	}{lines, entries})
	return nil
}

// line is e as the older form has it: JSON within a text, which E2B's command
// line reads.
func (e logEntry) line() logLine {
	text, err := json.Marshal(struct {
		Level   string `json:"level"`
		Logger  string `json:"logger"`
		Message string `json:"message"`
		Type    string `json:"type"`
	}{e.Level, clientID, e.Message, e.Fields["type"]})
	if err != nil { // it is all texts
		text = []byte("{}")
	}
	return logLine{e.Timestamp, string(text)}
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
