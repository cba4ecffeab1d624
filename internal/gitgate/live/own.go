package live

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// own has the secrets of one sandbox, none of which may be pushed: those that go into its requests, and what its
// remotes are known by over HTTPS. Private keys have a form that is found anyway.
type own struct {
	keys  keys
	names atomic.Pointer[[]string]
}

func newOwn(k keys) *own {
	o := &own{keys: k}
	o.use(k.sb)
	return o
}

// use goes by the secrets that sb may use from now on.
func (o *own) use(sb *sandbox.Sandbox) {
	names := slices.Clone(sb.Spec.Secrets)
	o.names.Store(&names)
}

// known returns them. It fails where one can't be read.
func (o *own) known(ctx context.Context) (all []scan.Known, err error) {
	sb := o.keys.sb
	if names := *o.names.Load(); len(names) > 0 {
		values, err := o.keys.g.o.Secrets.Known(ctx, sb.Owner, sb.ID, names)
		if err != nil {
			return nil, err
		}
		for name, v := range values {
			all = append(all, scan.Known{Name: name, Value: []byte(v.Reveal())})
			v.Wipe()
		}
	}
	for i := range sb.Spec.Remotes {
		r := &sb.Spec.Remotes[i]
		if at, _ := gitremote.Parse(r.URL); at.SSH {
			continue
		}
		c, err := o.keys.Credential(ctx, r.Name)
		if err != nil {
			return nil, err
		}
		if c.Password != "" {
			all = append(all, scan.Known{Name: "the key of " + r.Name, Value: []byte(c.Password)})
		}
	}
	return all, nil
}
