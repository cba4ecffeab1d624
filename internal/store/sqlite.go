// Package store keeps the records of sandboxes and their events: SQLite in a
// file that only its owner can read, and Memory for tests. Both implement
// sandbox.Store and sandbox.EventLog, and pass storetest.
//
// A record that was put, or deleted, is on the disk when the call returns: it
// outlives a kill of the process and, as far as the disk keeps its word, a
// loss of power. The Manager acts on what it wrote, so the last write is
// the one that must not be lost. Events are cheaper: they outlive a kill, and
// the newest may be lost with the power.
//
// Access tokens are sealed with a key that lies in a file of its own beside
// the database, so that a copy of the database gives away none.
//
// A database that is damaged, was written by a newer version, belongs to
// another program or is in use by another process is refused and left as it
// is.
package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// busyTimeout is how long a statement waits for the database's lock. All
	// who write are of this process, and each holds it for one statement.
	busyTimeout = 10 * time.Second
	// logPages is how long the log grows before it is emptied into the
	// database, in pages of 4 KiB: less than the spare file has.
	logPages = 200
	// maxDBPath is what SQLite can open, in bytes, with room for its "-wal".
	maxDBPath = 500
)

// SQLite is a store in one file.
type SQLite struct {
	path    string
	spare   spare
	key     *os.File // held locked
	sealer  sealer
	records *sql.DB // synchronous=FULL: durable
	events  *sql.DB // synchronous=NORMAL: outlives a kill
}

var (
	_ sandbox.Store    = (*SQLite)(nil)
	_ sandbox.EventLog = (*SQLite)(nil)
)

// Open opens the database at path, an absolute one, and makes it and its key
// file where there is none; the directory must be there. Until Close, no
// other process can open it.
func Open(ctx context.Context, path string) (_ *SQLite, err error) {
	if !filepath.IsAbs(path) || len(path) > maxDBPath {
		return nil, sandbox.Errorf(sandbox.Invalid, "the state file %s needs an absolute path of at most %d bytes", path, maxDBPath).
			WithHint("set XDG_STATE_HOME to a shorter directory")
	}
	head, err := prepare(path)
	if err != nil {
		return nil, err
	}
	s := &SQLite{path: path, spare: spare{path: path + spareSuffix}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	s.key, s.sealer, err = openKey(path+KeySuffix, head == headerFresh)
	if errors.Is(err, os.ErrNotExist) && head == headerUnknown {
		return nil, foreign(path)
	}
	if err != nil {
		return nil, err
	}
	if s.records, err = connect(path, "FULL"); err != nil {
		return nil, err
	}
	if s.events, err = connect(path, "NORMAL"); err != nil {
		return nil, err
	}
	err = s.migrate(ctx)
	if mayBeFull(err) { // of what is there, a lot can be removed
		if serr := s.spare.spend(); serr != nil {
			return nil, serr
		}
		err = s.migrate(ctx)
	}
	if err != nil {
		return nil, explain(err, path, "open the database")
	}
	if err := s.spare.keep(); err != nil {
		return nil, err
	}
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("sync state directory: %w", err)
	}
	return s, nil
}

// header is what the first bytes of a file say of it.
type header int

const (
	headerFresh   header = iota // there is nothing in it
	headerOurs                  // carboy's database
	headerUnknown               // a database without tables: ours, if its log says so
)

// prepare makes an empty database file with narrow permissions, which SQLite
// gives to its log too, or looks at the one that is there. What can be told
// to be no database of ours is refused before anything touches it.
func prepare(path string) (header, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, sandbox.DiskError(fmt.Errorf("open state file: %w", err), "the disk of "+path)
	}
	defer f.Close()
	if err := private(f); err != nil {
		return 0, err
	}
	// The format is documented at sqlite.org/fileformat.html.
	var b [105]byte
	switch n, err := io.ReadFull(f, b[:]); {
	case n == 0 && errors.Is(err, io.EOF):
		return headerFresh, nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, fmt.Errorf("read state file: %w", err)
	case err != nil, !bytes.HasPrefix(b[:], []byte("SQLite format 3\x00")):
		return 0, damaged(path, errors.New("not a database"))
	}
	// Our mark and our first table come by one write of this page.
	const leaf = 0x0d
	noTables := b[100] == leaf && binary.BigEndian.Uint16(b[103:]) == 0
	switch binary.BigEndian.Uint32(b[68:]) {
	case applicationID:
		return headerOurs, nil
	case 0:
		if noTables {
			return headerUnknown, nil
		}
	}
	return 0, foreign(path)
}

// connect returns a pool of one connection: SQLite has one writer anyway, and
// waiting for it in Go is fair and can be cancelled.
func connect(path, synchronous string) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()),
		"journal_mode(wal)",
		fmt.Sprintf("wal_autocheckpoint(%d)", logPages),
		"synchronous(" + synchronous + ")",
		"trusted_schema(off)",
	}}
	dsn := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// Close closes the database and lets others open it.
func (s *SQLite) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.events, s.records} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.key != nil {
		errs = append(errs, s.key.Close())
	}
	return errors.Join(errs...)
}

// Put implements sandbox.Store.
func (s *SQLite) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	record, err := encode(sb)
	if err != nil {
		return err
	}
	var expires any
	if !sb.ExpiresAt.IsZero() {
		expires = sb.ExpiresAt.UnixNano()
	}
	// Ends of sandboxes are what makes room.
	ending := sb.State == sandbox.StateStopping || sb.State == sandbox.StateStopped || sb.State == sandbox.StateRemoving
	err = s.write(ctx, s.records, ending, "write a record", `
		INSERT INTO sandboxes (id, owner, name, state, backend, expires_at, record, token, traffic)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET
			owner = excluded.owner, name = excluded.name, state = excluded.state,
			backend = excluded.backend, expires_at = excluded.expires_at,
			record = excluded.record, token = excluded.token, traffic = excluded.traffic`,
		sb.ID, sb.Owner, sb.Spec.Name, string(sb.State), sb.Backend, expires, record,
		s.sealer.seal(sb.Token, sb.ID), s.sealTraffic(sb))
	if code(err) == sqlite3.SQLITE_CONSTRAINT {
		return nameTaken(sb)
	}
	return err
}

// Get implements sandbox.Store.
func (s *SQLite) Get(ctx context.Context, id string) (*sandbox.Sandbox, error) {
	rows, err := s.query(ctx, `SELECT id, record, token, traffic FROM sandboxes WHERE id = ?`, id)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, notFound(id)
	}
	return rows[0], nil
}

// List implements sandbox.Store. The order is that of the IDs.
func (s *SQLite) List(ctx context.Context) ([]*sandbox.Sandbox, error) {
	return s.query(ctx, `SELECT id, record, token, traffic FROM sandboxes ORDER BY id`)
}

// Delete implements sandbox.Store. The sandbox's events go too.
func (s *SQLite) Delete(ctx context.Context, id string) error {
	err := s.write(ctx, s.records, true, "delete a record", `DELETE FROM sandboxes WHERE id = ?`, id)
	if err == nil {
		_ = s.spare.keep() // the next Open tries again
	}
	return err
}

// write executes one statement. SQLite writes to the end of its log, which a
// full disk refuses even to a deletion. So the log is then emptied into the
// database, and written from its beginning; where even that lacks room and
// the statement makes some, the spare file is given up.
func (s *SQLite) write(ctx context.Context, db *sql.DB, spend bool, doing, query string, args ...any) error {
	_, err := db.ExecContext(ctx, query, args...)
	if isFull(err, s.path) {
		err = again(ctx, db, err, query, args)
	}
	if spend && isFull(err, s.path) {
		if serr := s.spare.spend(); serr != nil {
			return serr
		}
		err = again(ctx, db, err, query, args)
	}
	return explain(err, s.path, doing)
}

// again empties the log and executes the statement that failed with cause.
func again(ctx context.Context, db *sql.DB, cause error, query string, args []any) error {
	if _, err := db.ExecContext(ctx, `PRAGMA wal_checkpoint(RESTART)`); err != nil {
		return cause
	}
	_, err := db.ExecContext(ctx, query, args...)
	return err
}

func (s *SQLite) query(ctx context.Context, query string, args ...any) (_ []*sandbox.Sandbox, err error) {
	defer func() { err = explain(err, s.path, "read records") }()
	rows, err := s.records.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []*sandbox.Sandbox{}
	for rows.Next() {
		var id, record string
		var token, traffic []byte
		if err := rows.Scan(&id, &record, &token, &traffic); err != nil {
			return nil, err
		}
		sb, err := s.decode(id, record, token, traffic)
		if err != nil {
			return nil, err
		}
		out = append(out, sb)
	}
	return out, rows.Err()
}
