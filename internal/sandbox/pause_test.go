package sandbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		for _, on := range []sandbox.OnExpiry{sandbox.OnExpiryStop, sandbox.OnExpiryRemove} {
			name := "web-" + string(on)
			create(t, d, sandbox.Spec{Name: name, TTL: time.Minute, OnExpiry: on})
			sb, kept, err := d.Pause(t.Context(), ann, name, true)
			if err != nil || kept || sb.State != sandbox.StateStopped || sb.Ended != sandbox.EndPaused || !sb.ExpiresAt.IsZero() {
				t.Fatalf("Pause = %+v, %t, %v", sb, kept, err)
			}
			_, _, err = d.Pause(t.Context(), ann, name, true)
			wantKind(t, "Pause of a paused one", err, sandbox.Conflict)
			_, _, err = d.EnsureRunning(t.Context(), ann, name)
			wantKind(t, "use of a paused one", err, sandbox.Conflict)
			if sb, err = d.SetTTL(t.Context(), ann, name, 2*time.Minute); err != nil || !sb.ExpiresAt.IsZero() {
				t.Errorf("SetTTL = %+v, %v; want no expiry while it is paused", sb, err)
			}
			pass(24 * time.Hour)
			wantState(t, d, name, sandbox.StateStopped, sandbox.EndPaused)
			if sb, err = d.Start(t.Context(), ann, name); err != nil || !sb.ExpiresAt.Equal(sb.StartedAt.Add(2*time.Minute)) {
				t.Fatalf("Start = %+v, %v; want it to expire in two minutes", sb, err)
			}
		}
		pass(2 * time.Minute)
		wantState(t, d, "web-stop", sandbox.StateStopped, sandbox.EndExpired)
		wantGone(t, d, "web-remove")
		_, _, err := d.Pause(t.Context(), ann, "web-stop", true)
		wantKind(t, "Pause of a stopped one", err, sandbox.Conflict)
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || !strings.Contains(e.Msg, "it is stopped") || e.Hint != "carboy start web-stop" {
			t.Errorf("Pause of a stopped one = %+v, want that it is stopped, and how to start it", e)
		}
		_, _, err = d.Pause(t.Context(), bob, "web-stop", true)
		wantKind(t, "Pause of another's", err, sandbox.NotFound)
	})
}

func TestSetOnExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "stays", TTL: time.Minute, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "goes", TTL: time.Minute})
		for ref, on := range map[string]sandbox.OnExpiry{"stays": sandbox.OnExpiryStop, "goes": sandbox.OnExpiryRemove} {
			if sb, err := d.SetOnExpiry(t.Context(), ann, ref, on); err != nil || sb.Spec.OnExpiry != on {
				t.Fatalf("SetOnExpiry = %+v, %v", sb, err)
			}
		}
		_, err := d.SetOnExpiry(t.Context(), ann, "goes", "hides")
		wantKind(t, "SetOnExpiry", err, sandbox.Invalid)
		pass(time.Minute)
		wantState(t, d, "stays", sandbox.StateStopped, sandbox.EndExpired)
		wantGone(t, d, "goes")
	})
}
