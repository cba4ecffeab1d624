package sandbox_test

import (
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// Whose instance has something that anybody's lacks gets warm ones of their own,
// and nobody else does.
func TestPersonalInstances(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 2}, func(t *testing.T, w *warmWorld, d *daemon) {
		ops := count(w.fake)
		them := sandbox.Caller{Owner: sandboxtest.PersonalOwner}
		if _, err := d.Create(t.Context(), them, sandbox.Spec{Name: "own"}, nil); err != nil {
			t.Fatal(err)
		}
		if ops.count(sandboxtest.Claim) != 0 || ops.count(sandboxtest.Start) != 1 {
			t.Errorf("claims %d, starts %d; want an ordinary start", ops.count(sandboxtest.Claim), ops.count(sandboxtest.Start))
		}
		pass(time.Second)
		if _, err := d.Create(t.Context(), them, sandbox.Spec{Name: "again"}, nil); err != nil {
			t.Fatal(err)
		}
		if ops.count(sandboxtest.Claim) != 1 {
			t.Error("no instance was kept warm for its owner")
		}
		create(t, d, sandbox.Spec{Name: "other"})
		if ops.count(sandboxtest.Claim) != 2 {
			t.Error("another owner got no warm instance")
		}
	})
}
