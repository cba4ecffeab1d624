package process_test

import (
	"os"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/backendtest"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/backend/process"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/long"
)

func TestMain(m *testing.M) {
	role.Become(process.Roles(nil), instance.Roles())
	os.Exit(m.Run())
}

// The suite that every wall passes.
func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Options{
		Long:      long.On(),
		HardLinks: true,
		Open: func(t *testing.T, state, cache string) sandbox.Backend {
			t.Helper()
			b, err := process.Open(t.Context(), process.Options{State: state, Cache: cache, Snapshots: backendtest.Snapshots(t, state)})
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
