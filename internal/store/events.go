package store

import (
	"context"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Append implements sandbox.EventLog.
func (s *SQLite) Append(ctx context.Context, id string, ev sandbox.Event) error {
	err := s.write(ctx, s.events, false, "write an event",
		`INSERT INTO events (sandbox_id, at, type, message) VALUES (?, ?, ?, ?)`,
		id, ev.Time.UnixNano(), ev.Type, ev.Message)
	if err != nil {
		return err
	}
	return s.write(ctx, s.events, false, "trim events", `
		DELETE FROM events WHERE sandbox_id = ?1 AND seq <= (
			SELECT seq FROM events WHERE sandbox_id = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)`,
		id, sandbox.MaxEvents)
}

// Events implements sandbox.EventLog.
func (s *SQLite) Events(ctx context.Context, id string) (_ []sandbox.Event, err error) {
	defer func() { err = explain(err, s.path, "read events") }()
	rows, err := s.events.QueryContext(ctx,
		`SELECT at, type, message FROM events WHERE sandbox_id = ? ORDER BY seq`, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []sandbox.Event
	for rows.Next() {
		var at int64
		var ev sandbox.Event
		if err := rows.Scan(&at, &ev.Type, &ev.Message); err != nil {
			return nil, err
		}
		ev.Time = time.Unix(0, at).UTC()
		out = append(out, ev)
	}
	return out, rows.Err()
}

// Forget implements sandbox.EventLog.
func (s *SQLite) Forget(ctx context.Context, id string) error {
	return s.write(ctx, s.events, true, "forget events", `DELETE FROM events WHERE sandbox_id = ?`, id)
}
