package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// applicationID marks a database as carboy's: "crby".
const applicationID = 0x63726279

// keyCheck is the text that is sealed in key_check.
const keyCheck = "carboy"

// migrations returns the steps in order; the n-th takes the schema from
// version n to n+1. A step that was released is never changed.
func migrations() ([]string, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var steps []string
	for i, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "migrations/%04d_", &n); err != nil || n != i+1 {
			return nil, fmt.Errorf("migration %s: want number %d", name, i+1)
		}
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, string(text))
	}
	return steps, nil
}

// migrate checks that the database is ours, sound and sealed with our key, and
// brings its schema to this version in one transaction.
func (s *SQLite) migrate(ctx context.Context) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	tx, err := s.records.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it was committed, or an earlier error says more
	version, err := s.version(ctx, tx, len(steps))
	if err != nil {
		return err
	}
	for i := version; i < len(steps); i++ {
		if _, err := tx.ExecContext(ctx, steps[i]); err != nil {
			return fmt.Errorf("migrate to version %d: %w", i+1, err)
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", i+1)); err != nil {
			return err
		}
	}
	if version == 0 {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
			return err
		}
		sealed := s.sealer.seal(keyCheck, "")
		if _, err := tx.ExecContext(ctx, `INSERT INTO key_check (sealed) VALUES (?)`, sealed); err != nil {
			return err
		}
	}
	if err := s.check(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// version returns the version of the schema, 0 for an empty database.
func (s *SQLite) version(ctx context.Context, tx *sql.Tx, newest int) (int, error) {
	var version, app, tables int
	for query, dst := range map[string]*int{
		`PRAGMA user_version`:                &version,
		`PRAGMA application_id`:              &app,
		`SELECT count(*) FROM sqlite_schema`: &tables,
	} {
		if err := tx.QueryRowContext(ctx, query).Scan(dst); err != nil {
			return 0, err
		}
	}
	if version == 0 && app == 0 && tables == 0 {
		return 0, nil
	}
	if app != applicationID {
		return 0, foreign(s.path)
	}
	if version > newest {
		return 0, sandbox.Errorf(sandbox.Unsupported,
			"%s was written by a newer carboy: its version is %d, this one knows %d", s.path, version, newest).
			WithHint("use that carboy, or set XDG_STATE_HOME to another directory")
	}
	return version, nil
}

// check refuses a database whose records are damaged or whose key is lost.
func (s *SQLite) check(ctx context.Context, tx *sql.Tx) error {
	var verdict string
	if err := tx.QueryRowContext(ctx, `PRAGMA quick_check('sandboxes')`).Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return damaged(s.path, errors.New(verdict))
	}
	var sealed []byte
	if err := tx.QueryRowContext(ctx, `SELECT sealed FROM key_check`).Scan(&sealed); err != nil {
		return err
	}
	if text, err := s.sealer.open(sealed, ""); err != nil || text != keyCheck {
		return sandbox.Errorf(sandbox.Internal, "%s is not the key of %s", s.path+KeySuffix, s.path).
			WithHint("put the key back that was made with the state file")
	}
	return nil
}
