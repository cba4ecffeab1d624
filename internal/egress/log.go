package egress

import (
	"context"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Log implements sandbox.Gate. It reads what the gate writes, so it works
// while there is none.
func (g *Gates) Log(ctx context.Context, id string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error {
	dir, err := g.dir(id)
	if err != nil {
		return err
	}
	return netlog.Read(ctx, filepath.Join(dir, fileLogA), filepath.Join(dir, fileLogB),
		netlog.Options{After: o.After, Denied: o.Denied, Follow: o.Follow}, yield)
}
