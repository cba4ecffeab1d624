package sandbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestOfferServiceHints: where a sandbox can't call a service, what the hint says to type leads
// there: it is typed here, and the service can be offered then.
func TestOfferServiceHints(t *testing.T) {
	serves := &policy.Policy{Services: []string{"docs"}}
	for _, tt := range []struct {
		name          string
		spec          sandbox.Spec
		stopped, next bool // next: it was set already
		kind          sandbox.Kind
		hint          string
	}{
		{"linked", sandbox.Spec{Policy: allow("a.example")}, false, false, sandbox.NotFound, "set --allow service:docs"},
		{"linked-stopped", sandbox.Spec{Policy: allow("a.example")}, true, false, sandbox.NotFound, "set --allow service:docs && start"},
		{"has-it-stopped", sandbox.Spec{Policy: serves}, true, false, sandbox.Conflict, "start"},
		{"off", sandbox.Spec{}, false, false, sandbox.NotFound, "set --allow service:docs && stop && start"},
		{"off-stopped", sandbox.Spec{}, true, false, sandbox.NotFound, "set --allow service:docs && start"},
		{"off-set", sandbox.Spec{}, false, true, sandbox.Conflict, "stop && start"},
		{"off-set-stopped", sandbox.Spec{}, true, true, sandbox.Conflict, "start"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inGateBubble(t, func(t *testing.T, _ *gateWorld, d *daemon) {
				tt.spec.Name = "web"
				create(t, d, tt.spec)
				offer := func() error {
					c, err := d.OfferService(t.Context(), ann, "web", "docs")
					if err == nil {
						_ = c.Close()
					}
					return err
				}
				do := func(line string) {
					var err error
					switch words := strings.Fields(line); words[1] {
					case "set":
						_, _, err = d.Set(t.Context(), ann, "web", sandbox.Change{Policy: serves})
					case "stop":
						_, err = d.Stop(t.Context(), ann, "web")
					case "start":
						_, err = d.Start(t.Context(), ann, "web")
					default:
						err = fmt.Errorf("%q is not known here", line)
					}
					if err != nil {
						t.Fatalf("%s: %v", line, err)
					}
				}
				if tt.stopped {
					do("carboy stop")
				}
				if tt.next {
					do("carboy set")
				}
				err := offer()
				wantKind(t, "offer", err, tt.kind)
				e, ok := errors.AsType[*sandbox.Error](err)
				if short := strings.ReplaceAll(strings.ReplaceAll(e.Hint, "carboy ", ""), " web", ""); !ok || short != tt.hint {
					t.Fatalf("the hint is %q, want %q", e.Hint, tt.hint)
				}
				for line := range strings.SplitSeq(e.Hint, " && ") {
					do(line)
				}
				if err := offer(); err != nil {
					t.Errorf("after %s: %v", e.Hint, err)
				}
			})
		})
	}
}
