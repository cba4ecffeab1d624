package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestSecretsAreInNoRecord: what comes with a spec reaches the gate, and
// nothing that is kept, shown or logged.
func TestSecretsAreInNoRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const value = "hunter2-of-web"
		var log bytes.Buffer
		w := newGateWorld()
		opts := sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.wall}, Gate: w.gate,
			Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		d := w.bootWith(t, opts)
		spec := sandbox.Spec{Name: "web", Policy: keyed("KEY"), Secrets: []string{"KEY"}}
		values := sandbox.SecretValues{"KEY": value}
		sb, err := d.Create(t.Context(), ann, spec, values)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.gate.Kept(sb.ID); got["KEY"] != value {
			t.Fatalf("the gate has %q: the search proves nothing", got)
		}
		var shown []string
		look := func(what string, v any) {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			shown = append(shown, fmt.Sprintf("%s: %s %+v", what, b, v))
		}
		look("created", *sb)
		look("got", *get(t, d, "web"))
		stored, err := w.store.Get(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		look("stored", *stored)
		d.Stop(t.Context(), ann, "web")
		if _, err := d.Start(t.Context(), ann, "web"); err != nil {
			t.Fatal(err)
		}
		if got := w.gate.Kept(sb.ID); got["KEY"] != value {
			t.Errorf("after another start the gate has %q", got)
		}
		w.gate.SetHook(failing(sandboxtest.GateOpen))
		spec.Name = "new"
		_, err = d.Create(t.Context(), ann, spec, values)
		look("error", fmt.Sprint(err))
		w.gate.SetHook(nil)
		spec.Policy = keyed("OTHER")
		_, err = d.Create(t.Context(), ann, spec, values)
		wantKind(t, "Create", err, sandbox.Invalid)
		look("error", fmt.Sprint(err))
		evs, _ := d.Events(t.Context(), ann, "web")
		look("events", evs)
		d.shutdown()
		for _, s := range append(shown, log.String()) {
			if strings.Contains(s, value) {
				t.Errorf("shown: %s", s)
			}
		}
		if !strings.Contains(log.String(), sb.ID) {
			t.Error("the log does not name the sandbox: the search proves nothing")
		}
		w.check(t)
	})
}

func TestSecretsOfTheOwner(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web", Policy: keyed("STORED"), Secrets: []string{"STORED"}})
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "new", Policy: keyed("MISSING"), Secrets: []string{"MISSING"}}, nil)
		wantKind(t, "Create", err, sandbox.NotFound)
		wantGone(t, d, "new")
	})
}

func TestNetLog(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		id := create(t, d, networked("web")).ID
		create(t, d, sandbox.Spec{Name: "off"})
		for seq := range uint64(4) {
			v := netlog.Allow
			if seq%2 == 1 {
				v = netlog.Deny
			}
			w.gate.Note(id, netlog.Record{Seq: seq + 1, Verdict: v})
		}
		read := func(c sandbox.Caller, ref string, o sandbox.NetLogOptions) ([]uint64, error) {
			var seqs []uint64
			err := d.NetLog(t.Context(), c, ref, o, func(r netlog.Record) error {
				seqs = append(seqs, r.Seq)
				if r.Seq == 4 && o.After == 3 {
					return errBoom
				}
				return nil
			})
			return seqs, err
		}
		tests := []struct {
			name   string
			caller sandbox.Caller
			ref    string
			o      sandbox.NetLogOptions
			want   []uint64
			kind   sandbox.Kind
		}{
			{"all", ann, "web", sandbox.NetLogOptions{}, []uint64{1, 2, 3, 4}, ""},
			{"denied", ann, "web", sandbox.NetLogOptions{Denied: true}, []uint64{2, 4}, ""},
			{"after", ann, "web", sandbox.NetLogOptions{After: 2}, []uint64{3, 4}, ""},
			{"reader-fails", ann, "web", sandbox.NetLogOptions{After: 3}, []uint64{4}, sandbox.Internal},
			{"admin", admin, id, sandbox.NetLogOptions{After: 2}, []uint64{3, 4}, ""},
			{"anothers", bob, id, sandbox.NetLogOptions{}, nil, sandbox.NotFound},
			{"unnetworked", ann, "off", sandbox.NetLogOptions{}, nil, ""},
			{"nobodys", ann, "nil", sandbox.NetLogOptions{}, nil, sandbox.NotFound},
		}
		for _, tt := range tests {
			got, err := read(tt.caller, tt.ref, tt.o)
			wantKind(t, tt.name, err, tt.kind)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
			}
		}
		d.Stop(t.Context(), ann, "web")
		if got, err := read(ann, "web", sandbox.NetLogOptions{}); len(got) != 4 || err != nil {
			t.Errorf("of a stopped sandbox: %d, %v", got, err)
		}
	})
}

// TestSecretValuesNeedNames: a value without a name among the secrets is refused,
// and shown nowhere.
func TestSecretValuesNeedNames(t *testing.T) {
	inGateBubble(t, func(t *testing.T, _ *gateWorld, d *daemon) {
		named := sandbox.Spec{Policy: keyed("A"), Secrets: []string{"A"}}
		for _, tt := range []struct {
			name   string
			spec   sandbox.Spec
			values sandbox.SecretValues
			want   sandbox.Kind
			text   string
		}{
			{name: "off-with-value", values: sandbox.SecretValues{"A": "hunter2"}, want: sandbox.Invalid, text: `secret "A"`},
			{name: "value-of-another", spec: named, values: sandbox.SecretValues{"B": "hunter2"}, want: sandbox.Invalid, text: `secret "B"`},
			{name: "secret-with-value", spec: named, values: sandbox.SecretValues{"A": "hunter2"}},
		} {
			_, err := d.Create(t.Context(), ann, tt.spec, tt.values)
			wantKind(t, tt.name, err, tt.want)
			if err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%s: error %q, want %q in it", tt.name, err, tt.text)
			}
			for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
				if got := fmt.Sprintf(format, tt.values); got != "[1 secrets]" {
					t.Errorf("%s prints %s", format, got)
				}
			}
		}
	})
}

// warmWall is a Warmer whose instances can have a network.
type warmWall struct {
	sandboxtest.Warmer
	linked sandboxtest.Linked
}

func (w warmWall) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	return w.linked.Start(ctx, sb)
}

func (w warmWall) Capabilities() sandbox.Capabilities {
	c := w.linked.Capabilities()
	c.Warm = w.Warmer
	return c
}

// TestPoolIgnoresNetworks: an instance with a network is never one that was kept
// warm, and none is kept warm for it.
func TestPoolIgnoresNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warm := sandboxtest.NewWarmer(sandbox.DefaultIsolation)
		w := &gateWorld{world: &world{fake: warm.Fake}, gate: sandboxtest.NewGate()}
		w.fake.SetServer(hangUp)
		wall := warmWall{warm, sandboxtest.Linked{Fake: warm.Fake, Gate: w.gate}}
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{wall}, Gate: w.gate, Pool: sandbox.Pool{Size: 1},
		})
		pass(time.Minute)
		kept := warm.Warmed()
		if len(kept) != 1 {
			t.Fatalf("warm: %v, want one", kept)
		}
		sb := create(t, d, networked("web"))
		pass(time.Minute)
		if got := warm.Warmed(); !slices.Equal(got, kept) || sb.ID == kept[0] {
			t.Errorf("warm: %v, want %v as before", got, kept)
		}
		if _, size := d.Pool(); size != 1 {
			t.Errorf("%d are to be warm, want 1: a network has made a kind of its own", size)
		}
		if sb := create(t, d, sandbox.Spec{Name: "off"}); sb.ID != kept[0] {
			t.Error("nor did one without a network get it")
		}
		d.shutdown()
		w.check(t)
	})
}
