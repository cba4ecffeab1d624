package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// What a connection has under way is bounded by its bytes too, and of all
// connections that share a budget; when an action has ended there is room again.
func TestTooLargeActions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		budget *rpc.Budget
		size   int    // of one
		want   string // of the third
	}{
		{"one-connection", nil, 12 << 20, fmt.Sprintf("actions of %d bytes under way", rpc.MaxUnderWay)},
		{"shared", rpc.NewBudget(20 << 16), 12 << 16, "all connections together"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			large := map[string]string{"cmd": strings.Repeat("x", tt.size)}
			here := make(chan struct{}, 3)
			goOn := make(chan struct{})
			a, b := overStdio(t)
			server := rpc.NewPeer(rpc.Options{Conn: b, Budget: tt.budget, Serve: func(context.Context, *langbot.Request) (any, error) {
				here <- struct{}{}
				<-goOn
				return nil, nil
			}})
			caller := rpc.NewPeer(rpc.Options{Conn: a})
			var wg sync.WaitGroup
			wg.Go(func() { _ = server.Run(t.Context()) })
			wg.Go(func() { _ = caller.Run(t.Context()) })
			defer wg.Wait()
			defer caller.Close()

			let := 2
			if tt.budget != nil {
				let = 1
			}
			var calls sync.WaitGroup
			for range let {
				calls.Go(func() {
					if err := caller.Call(t.Context(), "x", large, nil, nil); err != nil {
						t.Error(err)
					}
				})
				<-here
			}
			if err := caller.Call(t.Context(), "x", large, nil, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("one more = %.200v, want %q", err, tt.want)
			}
			close(goOn)
			calls.Wait()
			if err := caller.Call(t.Context(), "x", large, nil, nil); err != nil {
				t.Errorf("when the others had ended: %.200v", err)
			}
		})
	}
}
