package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// encode returns sb as JSON, without its tokens.
func encode(sb *sandbox.Sandbox) (string, error) {
	b, err := json.Marshal(sb)
	if err != nil {
		return "", fmt.Errorf("encode record: %w", err)
	}
	return string(b), nil
}

// parse reads what encode wrote, and nothing else: a field that this version
// does not know may be a promise that it would not keep.
func parse(id, record string) (*sandbox.Sandbox, error) {
	dec := json.NewDecoder(strings.NewReader(record))
	dec.DisallowUnknownFields()
	sb := new(sandbox.Sandbox)
	if err := dec.Decode(sb); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows the record")
	}
	if sb.ID != id {
		return nil, errors.New("the record is another sandbox's")
	}
	return sb, nil
}

// decode returns the sandbox of one row.
func (s *SQLite) decode(id, record string, token, traffic []byte) (*sandbox.Sandbox, error) {
	sb, err := parse(id, record)
	if err == nil {
		sb.Token, err = s.sealer.open(bytes.Clone(token), id)
	}
	if err == nil && traffic != nil {
		sb.TrafficToken, err = s.sealer.open(bytes.Clone(traffic), trafficID(id))
	}
	if err != nil {
		e := sandbox.Errorf(sandbox.Internal, "the record of sandbox %q in %s can't be read", id, s.path).
			WithHint(restoreHint, s.path)
		e.Err = err
		return nil, e
	}
	return sb, nil
}

// trafficID is what the traffic token of a sandbox is sealed for, so that it
// and the other do not open in each other's place.
func trafficID(id string) string { return id + " traffic" }

// sealTraffic returns the column of sb's traffic token.
func (s *SQLite) sealTraffic(sb *sandbox.Sandbox) []byte {
	if sb.TrafficToken == "" {
		return nil
	}
	return s.sealer.seal(sb.TrafficToken, trafficID(sb.ID))
}

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
