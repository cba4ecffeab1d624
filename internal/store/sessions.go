package store

import (
	"context"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

func keyTaken(r record.Session) error {
	return sandbox.Errorf(sandbox.Conflict, "session %.200q: the key is taken", r.Key)
}

// SaveSession adds or replaces the record of a session. It fails with Conflict
// where another one has the same owner and key.
func (s *SQLite) SaveSession(ctx context.Context, r record.Session) error {
	b, err := record.Marshal(r)
	if err != nil {
		return err
	}
	err = s.write(ctx, s.records, r.State == record.Closing, "write a session", `
		INSERT INTO sessions (id, owner, key, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, key = excluded.key, record = excluded.record`,
		r.ID, r.Owner, r.Key, string(b))
	if code(err) == sqlite3.SQLITE_CONSTRAINT {
		return keyTaken(r)
	}
	return err
}

// DeleteSession deletes the record of a session. One that is not there is no
// error.
func (s *SQLite) DeleteSession(ctx context.Context, id string) error {
	return s.write(ctx, s.records, true, "delete a session", `DELETE FROM sessions WHERE id = ?`, id)
}

// Sessions returns all records, in the order of their IDs.
func (s *SQLite) Sessions(ctx context.Context) (_ []record.Session, err error) {
	defer func() { err = explain(err, s.path, "read sessions") }()
	rows, err := s.records.QueryContext(ctx, `SELECT id, record FROM sessions ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []record.Session{}
	for rows.Next() {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, err
		}
		r, err := record.Parse([]byte(text))
		if err != nil || r.ID != id {
			e := sandbox.Errorf(sandbox.Internal, "the record of session %q in %s can't be read", id, s.path).WithHint(restoreHint, s.path)
			e.Err = err
			return nil, e
		}
		out = append(out, r)
	}
	return out, rows.Err()
}
