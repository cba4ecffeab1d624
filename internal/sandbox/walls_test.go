package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// refusing is a wall whose every Check fails so.
func refusing(name string, err error) *sandboxtest.Fake {
	f := sandboxtest.New(name)
	f.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		if op == sandboxtest.Check {
			return err
		}
		return nil
	})
	return f
}

func TestChoiceOfAWall(t *testing.T) {
	noRoot := sandbox.Errorf(sandbox.Unsupported, "no root inside").WithHint("--isolation gvisor")
	noKVM := sandbox.Errorf(sandbox.Unsupported, "no KVM").WithHint("buy one")
	tooBig := sandbox.Errorf(sandbox.Exhausted, "the disk is full").WithHint("df")
	tests := []struct {
		name     string
		walls    map[string]error // those that there are, and what their Check says
		asked    string
		stronger []string
		want     string // the wall
		why      string
		kind     sandbox.Kind
		text     []string // in the error
		hint     string
	}{
		{
			name: "asked-for", walls: map[string]error{"process": nil, "gvisor": nil},
			asked: "process", stronger: []string{"gvisor"}, want: "process", why: "asked for",
		},
		{
			name: "next", walls: map[string]error{"process": noRoot, "gvisor": nil, "microvm": nil},
			asked: "process", stronger: []string{"microvm", "gvisor"}, want: "gvisor",
			why: "process can't: no root inside; gvisor is allowed and stronger",
		},
		{
			name: "last", walls: map[string]error{"process": noRoot, "gvisor": errBoom, "microvm": nil},
			asked: "process", stronger: []string{"gvisor", "microvm"}, want: "microvm",
			why: "process can't: no root inside; gvisor can't: internal error; microvm is allowed and stronger",
		},
		{
			name: "asked-for-is-missing", walls: map[string]error{"gvisor": nil},
			asked: "process", stronger: []string{"gvisor"}, want: "gvisor",
			why: "process can't: this machine does not have it; gvisor is allowed and stronger",
		},
		{
			name: "none-unnamed", walls: map[string]error{"process": nil, "gvisor": noRoot, "microvm": nil},
			asked: "gvisor", kind: sandbox.Unsupported, text: []string{"no root inside"}, hint: "--isolation gvisor",
		},
		{
			name: "none-weaker", walls: map[string]error{"process": nil, "gvisor": noRoot, "microvm": noKVM},
			asked: "gvisor", stronger: []string{"microvm"}, kind: sandbox.Unsupported,
			text: []string{"gvisor can't: no root inside", "microvm can't: no KVM"}, hint: "--isolation gvisor",
		},
		{
			name: "none-of-one-kind", walls: map[string]error{"process": tooBig, "gvisor": tooBig},
			asked: "process", stronger: []string{"gvisor"}, kind: sandbox.Exhausted,
			text: []string{"process can't: the disk is full", "gvisor can't: the disk is full"}, hint: "df",
		},
		{
			name: "none-and-one-missing", walls: map[string]error{"process": tooBig},
			asked: "process", stronger: []string{"gvisor"}, kind: sandbox.Unsupported,
			text: []string{"process can't: the disk is full", "gvisor can't: this machine does not have it"},
		},
		{
			name: "missing", walls: map[string]error{"process": nil},
			asked: "gvisor", stronger: []string{"microvm"}, kind: sandbox.Unsupported,
			text: []string{"gvisor or microvm"}, hint: "process",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				fakes := map[string]*sandboxtest.Fake{}
				opts := sandbox.Options{Store: &w.store}
				for name, err := range tc.walls {
					fakes[name] = refusing(name, err)
					opts.Backends = append(opts.Backends, fakes[name])
				}
				d := w.bootWith(t, opts)
				defer d.shutdown()
				sb, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "web", Isolation: tc.asked, Stronger: tc.stronger}, nil)
				wantKind(t, "Create", err, tc.kind)
				for name, f := range fakes {
					if n := len(f.Running()); (n == 1) != (name == tc.want) {
						t.Errorf("%d instances behind %s, want one behind %q alone", n, name, tc.want)
					}
				}
				if err != nil {
					wantError(t, err, tc.text, tc.hint)
					return
				}
				if sb.Backend != tc.want || sb.Why != tc.why || sb.Spec.Isolation != tc.asked {
					t.Errorf("behind %s, asked for %s, why = %q; want %q", sb.Backend, sb.Spec.Isolation, sb.Why, tc.why)
				}
			})
		})
	}
}

func wantError(t *testing.T, err error, text []string, hint string) {
	t.Helper()
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || !strings.Contains(e.Hint, hint) {
		t.Errorf("error = %#v, want the hint %q", err, hint)
	}
	for _, part := range text {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error = %q, want %q in it", err, part)
		}
	}
	if strings.Contains(err.Error(), "boom") {
		t.Errorf("error = %q shows what is for the log", err)
	}
}

// TestChosenWallIsKept: a stopped sandbox starts again behind the wall it
// has, though the one asked for could take it by now.
func TestChosenWallIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		process := refusing("process", sandbox.Errorf(sandbox.Unsupported, "not today"))
		opts := sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{process, w.fake}}
		d := w.bootWith(t, opts)
		sb := create(t, d, sandbox.Spec{Name: "web", Isolation: "process", Stronger: []string{"gvisor"}})
		d.Stop(t.Context(), ann, "web")
		d.shutdown()
		process.SetHook(nil)
		d = w.bootWith(t, opts)
		again, err := d.Start(t.Context(), ann, "web")
		if err != nil || again.Backend != "gvisor" || again.Why != sb.Why || len(process.Running()) != 0 {
			t.Errorf("Start = %+v, %v; want it behind gvisor still", again, err)
		}
		evs, err := d.Events(t.Context(), ann, "web")
		if err != nil || len(evs) == 0 {
			t.Fatalf("Events = %v, %v", evs, err)
		}
		want := "created behind gvisor: process can't: not today; gvisor is allowed and stronger"
		if diff := cmp.Diff(want, evs[0].Message); diff != "" {
			t.Errorf("first event (-want +got):\n%s", diff)
		}
		d.shutdown()
		w.check(t)
	})
}

func TestCheckOfACallerWhoLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		ctx, cancel := context.WithCancel(t.Context())
		w.fake.SetHook(func(ctx context.Context, op sandboxtest.Op, _ string) error {
			cancel()
			return ctx.Err()
		})
		_, err := d.Create(ctx, ann, sandbox.Spec{Stronger: []string{"microvm"}}, nil)
		wantKind(t, "Create", err, sandbox.Unavailable)
		w.fake.SetHook(nil)
	})
}

// plainWall is a Fake that can do nothing beyond what every backend does.
type plainWall struct{ *sandboxtest.Fake }

func (plainWall) Capabilities() sandbox.Capabilities {
	return sandbox.Capabilities{Strength: sandbox.HostKernel}
}

// TestCapabilities: a wall gets no spec that needs what it does not state, and a
// stronger one that states it does.
func TestCapabilities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		opts := sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{plainWall{sandboxtest.New(sandbox.WallProcess)}, w.fake},
			Volumes: cellar{volume1}, Images: &shelf{images: []string{"sha256:" + strings.Repeat("a", 64)}},
		}
		d := w.bootWith(t, opts)
		for name, spec := range map[string]sandbox.Spec{
			"workspace-of-the-host": {Workspace: cow()},
			"mount-of-the-host":     {Mounts: []sandbox.Mount{{Source: cow().Source, Target: "/mnt/a"}}},
			"volume":                {Mounts: []sandbox.Mount{{Volume: volume1, Target: "/mnt/a"}}},
			"image":                 {Image: "debian@sha256:" + strings.Repeat("a", 64)},
		} {
			spec.Isolation = sandbox.WallProcess
			_, err := d.Create(t.Context(), ann, spec, nil)
			wantKind(t, name, err, sandbox.Unsupported)
			spec.Stronger = []string{sandbox.WallGVisor}
			if sb, err := d.Create(t.Context(), ann, spec, nil); err != nil || sb.Backend != sandbox.WallGVisor {
				t.Errorf("%s, with a stronger wall: %+v, %v", name, sb, err)
			}
		}
		if sb := create(t, d, sandbox.Spec{Name: "plain", Isolation: sandbox.WallProcess}); sb.Backend != sandbox.WallProcess {
			t.Errorf("a plain one is behind %s", sb.Backend)
		}
		d.shutdown()
	})
}
