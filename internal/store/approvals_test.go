package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
)

// Numbers have nine digits and can't be counted; the oldest is told by its time.
func TestDrawApprovals(t *testing.T) {
	s := mustOpen(t, dbPath(t))
	drawn, err := s.DrawApprovals(t.Context(), 256)
	if err != nil || len(drawn) != 256 {
		t.Fatalf("%d drawn, %v", len(drawn), err)
	}
	seen, next := map[int64]bool{}, 0
	for i, id := range drawn {
		if seen[id] || id < 100_000_000 || id > 999_999_999 {
			t.Errorf("drew %d", id)
		}
		if seen[id] = true; i > 0 && id == drawn[i-1]+1 {
			next++
		}
	}
	if next > 2 {
		t.Errorf("%d follow the one before", next)
	}
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 1003 { // the greater the number, the older
		a := api.Approval{ID: int64(2000 - i), Owner: "uid:1", Asked: begun.Add(time.Duration(i) * time.Second), State: "denied"}
		if err := s.PutApproval(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Approvals(t.Context(), "uid:1", 2000)
	if err != nil || len(list) != 1000 || list[0].ID != 2000-1002 || list[999].ID != 1997 {
		t.Errorf("%d are kept, %s, %v", len(list), fmt.Sprint(list[0].ID), err)
	}
}
