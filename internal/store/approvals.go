package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// keptApprovals is how many are kept of each owner.
const keptApprovals = 1000

// Numbers of approvals have nine digits.
const (
	firstApproval = 100_000_000
	approvals     = 900_000_000
)

// DrawApprovals returns n numbers at random, each once, that no approval has.
func (s *SQLite) DrawApprovals(ctx context.Context, n int) (drawn []int64, err error) {
	defer func() { err = explain(err, s.path, "number approvals") }()
	for len(drawn) < n {
		r, err := rand.Int(rand.Reader, big.NewInt(approvals))
		if err != nil {
			return nil, err
		}
		id := firstApproval + r.Int64()
		var taken bool
		if err := s.records.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM approvals WHERE id = ?)`, id).Scan(&taken); err != nil {
			return nil, err
		}
		if !taken && !slices.Contains(drawn, id) {
			drawn = append(drawn, id)
		}
	}
	return drawn, nil
}

// PutApproval adds or replaces what became of a question, and forgets the oldest of
// its owner's where there are too many.
func (s *SQLite) PutApproval(ctx context.Context, a api.Approval) error {
	record, err := json.Marshal(a)
	if err != nil {
		return err
	}
	err = s.write(ctx, s.events, false, "write an approval", `
		INSERT INTO approvals (id, owner, asked, record) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record`, a.ID, a.Owner, a.Asked.UnixNano(), string(record))
	if err != nil {
		return err
	}
	return s.write(ctx, s.events, false, "trim approvals", `
		DELETE FROM approvals WHERE owner = ?1 AND (asked, id) <= (
			SELECT asked, id FROM approvals WHERE owner = ?1 ORDER BY asked DESC, id DESC LIMIT 1 OFFSET ?2)`,
		a.Owner, keptApprovals)
}

// Approval returns one, or NotFound.
func (s *SQLite) Approval(ctx context.Context, id int64) (api.Approval, error) {
	list, err := readRecords(ctx, s, "read an approval", func(*api.Approval, sql.NullInt64) {}, `SELECT record, NULL FROM approvals WHERE id = ?`, id)
	if err == nil && len(list) == 0 {
		err = sandbox.Errorf(sandbox.NotFound, "approval %d: not found", id)
	}
	if err != nil {
		return api.Approval{}, err
	}
	if list[0].ID != id {
		return api.Approval{}, damaged(s.path, fmt.Errorf("the record of approval %d is another's", id))
	}
	return list[0], nil
}

// Approvals lists those of an owner, or of all where that is "", newest first.
func (s *SQLite) Approvals(ctx context.Context, owner string, most int) ([]api.Approval, error) {
	return readRecords(ctx, s, "read approvals", func(*api.Approval, sql.NullInt64) {},
		`SELECT record, NULL FROM approvals WHERE ?1 = '' OR owner = ?1 ORDER BY asked DESC, id DESC LIMIT ?2`, owner, most)
}
