package sandbox_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

// BenchmarkExecPath is what the manager adds to each command in a running
// sandbox: to find it, to see that it runs, and to dial.
func BenchmarkExecPath(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("of-%d", n), func(b *testing.B) {
			fake := sandboxtest.New(sandbox.DefaultIsolation)
			fake.SetServer(func(_ string, _ int, c net.Conn) { c.Close() })
			m, err := sandbox.NewManager(sandbox.Options{
				Store: new(storetest.Memory), Backends: []sandbox.Backend{fake}, CPUs: 4,
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx := context.Background()
			if err := m.Adopt(ctx); err != nil {
				b.Fatal(err)
			}
			for i := range n {
				spec := sandbox.Spec{Name: fmt.Sprintf("web-%d", i)}
				if _, err := m.Create(ctx, ann, spec, nil); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, _, err := m.EnsureRunning(ctx, ann, "web-0"); err != nil {
					b.Fatal(err)
				}
				c, err := m.Dial(ctx, ann, "web-0", sandbox.GuestPort)
				if err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
			m.Close()
			fake.Close()
		})
	}
}
