package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

var (
	_ team.Keys     = (*SQLite)(nil)
	_ team.Secrets  = (*SQLite)(nil)
	_ team.Settings = (*SQLite)(nil)
)

// Keys implements team.Keys.
func (s *SQLite) Keys(ctx context.Context) ([]team.Key, error) {
	return readRecords(ctx, s, "read keys", func(k *team.Key, used sql.NullInt64) {
		if used.Valid {
			k.LastUsed = time.Unix(0, used.Int64).UTC()
		}
	}, `SELECT record, used_at FROM keys ORDER BY id`)
}

// readRecords decodes rows of a record and a number.
func readRecords[T any](
	ctx context.Context, s *SQLite, doing string, with func(*T, sql.NullInt64), query string, args ...any,
) (_ []T, err error) {
	defer func() { err = explain(err, s.path, doing) }()
	rows, err := s.records.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []T{}
	for rows.Next() {
		var text string
		var n sql.NullInt64
		if err := rows.Scan(&text, &n); err != nil {
			return nil, err
		}
		var v T
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, damaged(s.path, fmt.Errorf("%s: %w", doing, err))
		}
		with(&v, n)
		out = append(out, v)
	}
	return out, rows.Err()
}

// PutKey implements team.Keys.
func (s *SQLite) PutKey(ctx context.Context, k team.Key) error {
	record, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return s.write(ctx, s.records, false, "write a key", `
		INSERT INTO keys (id, owner, hash, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record`,
		k.ID, k.Owner, k.Hash, string(record))
}

// DeleteKey implements team.Keys.
func (s *SQLite) DeleteKey(ctx context.Context, id string) error {
	return s.write(ctx, s.records, true, "delete a key", `DELETE FROM keys WHERE id = ?`, id)
}

// UseKey implements team.Keys.
func (s *SQLite) UseKey(ctx context.Context, id string, at time.Time) error {
	return s.write(ctx, s.events, false, "write the last use of a key",
		`UPDATE keys SET used_at = ? WHERE id = ?`, at.UnixNano(), id)
}

// NamedSecrets implements team.Secrets.
func (s *SQLite) NamedSecrets(ctx context.Context, owner string) ([]team.Secret, error) {
	return readRecords(ctx, s, "read names of secrets", func(*team.Secret, sql.NullInt64) {},
		`SELECT record, NULL FROM named_secrets WHERE owner = ? ORDER BY name`, owner)
}

// PutNamedSecret implements team.Secrets.
func (s *SQLite) PutNamedSecret(ctx context.Context, sec team.Secret) error {
	record, err := json.Marshal(sec)
	if err != nil {
		return err
	}
	err = s.write(ctx, s.records, false, "write the name of a secret", `
		INSERT INTO named_secrets (id, owner, name, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record`,
		sec.ID, sec.Owner, sec.Name, string(record))
	if code(err) == sqlite3.SQLITE_CONSTRAINT {
		return sandbox.Errorf(sandbox.Conflict, "there is a secret of that name").WithHint("give it another value, or choose another name")
	}
	return err
}

// DeleteNamedSecret implements team.Secrets.
func (s *SQLite) DeleteNamedSecret(ctx context.Context, id string) error {
	return s.write(ctx, s.records, true, "delete the name of a secret", `DELETE FROM named_secrets WHERE id = ?`, id)
}

// Setting implements team.Settings.
func (s *SQLite) Setting(ctx context.Context, name string) (value string, err error) {
	err = s.records.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = ?`, name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, explain(err, s.path, "read a setting")
}

// SetSetting implements team.Settings.
func (s *SQLite) SetSetting(ctx context.Context, name, value string) error {
	return s.write(ctx, s.records, true, "write a setting",
		`INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
}
