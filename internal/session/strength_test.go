package session_test

import (
	"testing"
	"testing/synctest"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// A wall that is weaker than the operator's is had by nobody whom the operator
// has not allowed it, and a stronger one by all.
func TestWeakerWall(t *testing.T) {
	for _, tt := range []struct {
		name  string
		c     session.Config
		asked string
		class string
		wall  string
	}{
		{"weaker", session.Config{Isolation: sandbox.WallGVisor}, sandbox.WallProcess, langbot.ClassValidation, ""},
		{"weaker-than-the-default", session.Config{}, sandbox.WallProcess, langbot.ClassValidation, ""},
		{"allowed", session.Config{AllowedIsolation: []string{sandbox.WallProcess}}, sandbox.WallProcess, "", sandbox.WallProcess},
		{"the-same", session.Config{}, sandbox.WallGVisor, "", sandbox.WallGVisor},
		{"none", session.Config{}, "", "", sandbox.WallGVisor},
		{"stronger", session.Config{Isolation: sandbox.WallProcess}, sandbox.WallGVisor, "", sandbox.WallGVisor},
		{"what-there-is-not", session.Config{}, "paper", langbot.ClassBackendUnavailable, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				strong := sandboxtest.New(sandbox.WallGVisor)
				defer strong.Close()
				d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake, strong}}, session.Options{Store: &w.store, Config: tt.c})
				defer d.shutdown()
				spec := asked("k", "")
				spec.Isolation = tt.asked
				info, err := d.Create(t.Context(), ann, spec)
				wantClass(t, "Create", err, tt.class)
				if info.BackendName != tt.wall {
					t.Errorf("it is behind %q, want %q", info.BackendName, tt.wall)
				}
				if tt.class == "" {
					return
				}
				if all, err := d.List(t.Context(), admin); err != nil || len(all) > 0 {
					t.Errorf("what was refused is there: %v, %v", all, err)
				}
			})
		})
	}
}

// A session gets no wall that is weaker than its caller may have, neither when it is
// made nor when it is woken.
func TestFloorOfACaller(t *testing.T) {
	held := ann
	held.Floor = sandbox.Floor{Wall: sandbox.WallGVisor, Setting: "the test"}
	wantDenied := func(what string, err error) {
		t.Helper()
		if sandbox.KindOf(err) != sandbox.Denied {
			t.Errorf("%s: %v, want it denied", what, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t, config())
		defer w.check(t)
		defer d.shutdown()
		_, err := d.Create(t.Context(), held, asked("k", ""))
		wantDenied("Create", err)
		_, err = d.Exec(t.Context(), held, asked("k", "echo x"))
		wantDenied("Exec", err)
		run(t, d, asked("k", "echo x")) // who has no such floor
		sb, err := d.manager.List(t.Context(), admin, sandbox.Filter{})
		if err != nil || len(sb) != 1 {
			t.Fatalf("%d sandboxes: %v", len(sb), err)
		}
		if _, err := d.manager.Stop(t.Context(), admin, sb[0].ID); err != nil {
			t.Fatal(err)
		}
		_, err = d.Exec(t.Context(), held, asked("k", "echo x"))
		wantDenied("Exec in one that is stopped", err)
		run(t, d, asked("k", "echo x"))
	})
}

// A session that is there keeps its wall: asking for that takes nothing away.
func TestWallOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t, config())
		run(t, d, asked("k", "echo x"))
		d.shutdown()
		strict := session.Config{Isolation: sandbox.WallGVisor}
		d = w.boot(t, strict)
		defer w.check(t)
		defer d.shutdown()
		spec := asked("k", "echo x")
		spec.Isolation = sandbox.WallGVisor
		_, err := d.Exec(t.Context(), ann, spec)
		wantFields(t, err, "isolation")
		spec.Isolation = sandbox.WallProcess
		if res := run(t, d, spec); res.Backend != sandbox.WallProcess {
			t.Errorf("it is behind %q", res.Backend)
		}
	})
}
