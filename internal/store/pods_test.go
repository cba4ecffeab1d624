package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

func TestPods(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.RunPods(t, func(*testing.T) storetest.Pods { return new(storetest.Memory) })
	})
	t.Run("sqlite", func(t *testing.T) {
		storetest.RunPods(t, func(t *testing.T) storetest.Pods { return mustOpen(t, dbPath(t)) })
	})
}

func TestPodsOutliveTheProcess(t *testing.T) {
	path := dbPath(t)
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ChangePods(t.Context(), "uid:1000", []record.Pod{storetest.Pod(1)}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := mustOpen(t, path).Pods(t.Context(), "uid:1000")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]record.Pod{storetest.Pod(1)}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
