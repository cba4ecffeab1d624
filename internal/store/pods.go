package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Pods returns an owner's records of pods, in the order of their names.
func (s *SQLite) Pods(ctx context.Context, owner string) (_ []record.Pod, err error) {
	defer func() { err = explain(err, s.path, "read pods") }()
	rows, err := s.records.QueryContext(ctx, `SELECT name, record FROM pods WHERE owner = ? ORDER BY name`, owner)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []record.Pod{}
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		p, err := record.Parse([]byte(text))
		if err == nil && (p.Name != name || p.Owner != owner) {
			err = fmt.Errorf("it is another's")
		}
		if err != nil {
			e := sandbox.Errorf(sandbox.Internal, "the record of pod %q in %s can't be read", name, s.path).WithHint(restoreHint, s.path)
			e.Err = err
			return nil, e
		}
		out = append(out, p)
	}
	return out, rows.Err()
}

// PodOwners are those who have records of pods, in order.
func (s *SQLite) PodOwners(ctx context.Context) (_ []string, err error) {
	defer func() { err = explain(err, s.path, "read pods") }()
	rows, err := s.records.QueryContext(ctx, `SELECT DISTINCT owner FROM pods ORDER BY owner`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var owner string
		if err := rows.Scan(&owner); err != nil {
			return nil, err
		}
		out = append(out, owner)
	}
	return out, rows.Err()
}

// ChangePods puts records of an owner's in their place and deletes others, all of it or nothing.
// A name without a record is no error.
func (s *SQLite) ChangePods(ctx context.Context, owner string, put []record.Pod, gone []string) error {
	texts := make([]string, len(put))
	for i, p := range put {
		if p.Owner != owner {
			return sandbox.Errorf(sandbox.Internal, "the record of pod %q is %q's, not %q's", p.Name, p.Owner, owner)
		}
		b, err := record.Marshal(p)
		if err != nil {
			return err
		}
		texts[i] = string(b)
	}
	change := func() error {
		tx, err := s.records.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it was committed, or an earlier error says more
		if err := changePods(ctx, tx, owner, put, texts, gone); err != nil {
			return err
		}
		return tx.Commit()
	}
	err := change()
	if isFull(err, s.path) {
		if _, cerr := s.records.ExecContext(ctx, `PRAGMA wal_checkpoint(RESTART)`); cerr == nil {
			err = change()
		}
	}
	if len(gone) > 0 && isFull(err, s.path) { // what goes makes room
		if serr := s.spare.spend(); serr != nil {
			return serr
		}
		err = change()
	}
	return explain(err, s.path, "write pods")
}

func changePods(ctx context.Context, tx *sql.Tx, owner string, put []record.Pod, texts, gone []string) error {
	for _, name := range gone {
		if _, err := tx.ExecContext(ctx, `DELETE FROM pods WHERE owner = ? AND name = ?`, owner, name); err != nil {
			return err
		}
	}
	for i, p := range put {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO pods (owner, name, record) VALUES (?, ?, ?)
			ON CONFLICT (owner, name) DO UPDATE SET record = excluded.record`, owner, p.Name, texts[i])
		if err != nil {
			return err
		}
	}
	return nil
}
