package gvisor_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/backendtest"
	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/long"
)

// The suite that every wall passes.
func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Options{
		Long: long.On(),
		Root: true, MemoryEndsInstance: true,
		Open: func(t *testing.T, state, cache string) sandbox.Backend {
			t.Helper()
			b, err := gvisor.Open(t.Context(), gvisor.Options{State: state, Cache: cache, Snapshots: backendtest.Snapshots(t, state)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			return b
		},
	})
}
