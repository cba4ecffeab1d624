package sandbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// floors are quotas with nothing but a weakest wall for each owner.
type floors map[string]string

func (f floors) Quota(owner string) sandbox.Quota {
	return sandbox.Quota{Floor: sandbox.Floor{Wall: f[owner], Setting: "the test"}}
}
func (floors) Admit(string, time.Time) error        { return nil }
func (floors) Changed(string, int, bool, time.Time) {}

// No sandbox comes about behind a wall that is weaker than its caller may have, nor
// is started there.
func TestFloor(t *testing.T) {
	const low, high = sandbox.WallProcess, sandbox.WallGVisor
	held := sandbox.Floor{Wall: high, Setting: "weakest_isolation"}
	key := func(f sandbox.Floor) sandbox.Caller { return sandbox.Caller{Owner: ann.Owner, Floor: f} }
	daemon := sandbox.Caller{Admin: true}
	tests := []struct {
		name   string
		owners floors
		c      sandbox.Caller
		asked  []string // the weakest first
		kind   sandbox.Kind
	}{
		{"weaker", nil, key(held), []string{low}, sandbox.Denied},
		{"weaker-or-stronger", nil, key(held), []string{low, high}, sandbox.Denied},
		{"as-strong", nil, key(held), []string{high}, ""},
		{"unsaid", nil, key(held), nil, ""},
		{"no-floor", nil, key(sandbox.Floor{}), []string{low}, ""},
		{"low-floor", nil, key(sandbox.Floor{Wall: low}), []string{low}, ""},
		{"of-the-owner", floors{ann.Owner: high}, key(sandbox.Floor{}), []string{low}, sandbox.Denied},
		{"of-another-owner", floors{"key:other": high}, key(sandbox.Floor{}), []string{low}, ""},
		{"the-key-before-the-owner", floors{ann.Owner: high}, key(sandbox.Floor{Wall: low}), []string{low}, ""},
		{"unknown", nil, key(sandbox.Floor{Wall: "gvizor"}), []string{high}, sandbox.Denied},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				opts := sandbox.Options{
					Store:    &w.store,
					Backends: []sandbox.Backend{sandboxtest.New(low), sandboxtest.New(high)},
				}
				if tc.owners != nil {
					opts.Quotas = tc.owners
				}
				d := w.bootWith(t, opts)
				defer d.shutdown()
				spec := sandbox.Spec{Name: "web"}
				if len(tc.asked) > 0 {
					spec.Isolation, spec.Stronger = tc.asked[0], tc.asked[1:]
				}
				_, err := d.Create(t.Context(), tc.c, spec, nil)
				wantKind(t, "Create", err, tc.kind)
				if err != nil {
					wantError(t, err, []string{spec.Isolation, "weaker than"}, "weakest_isolation")
					return
				}
				if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
					t.Fatal(err)
				}
				_, err = d.Start(t.Context(), tc.c, "web")
				wantKind(t, "Start", err, "")
			})
		})
	}
	t.Run("started-later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			owners := floors{}
			d := w.bootWith(t, sandbox.Options{
				Store: &w.store, Quotas: owners,
				Backends: []sandbox.Backend{sandboxtest.New(low), sandboxtest.New(high)},
			})
			defer d.shutdown()
			sb, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "web", Isolation: low}, nil)
			if err == nil {
				_, err = d.Stop(t.Context(), ann, "web")
			}
			if err != nil {
				t.Fatal(err)
			}
			owners[ann.Owner] = high
			for name, c := range map[string]sandbox.Caller{"key": key(held), "owner": ann, "daemon": daemon} {
				_, err = d.Start(t.Context(), c, sb.ID)
				wantKind(t, "Start by "+name, err, sandbox.Denied)
			}
			local := sandbox.Caller{Owner: "uid:0", Admin: true}
			_, err = d.Start(t.Context(), local, sb.ID)
			wantKind(t, "Start by a user of the machine", err, "")
		})
	})
}
