package daemon

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/pod/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// pods are the agents that sandboxes have spawned, or none: without volumes there are none.
type pods struct{ *service.Service }

func (d *daemon) newPods(db *store.SQLite, volumes *volume.Service) *service.Service {
	return service.New(service.Options{
		Store: db, Sandboxes: d.manager, Volumes: volumes, Dir: filepath.Join(d.cfg.Dirs.State, "pods"), Log: d.log,
	})
}

// podTools serves the tools by which a sandbox's programs spawn pods.
func (d *daemon) podTools(sb *sandbox.Sandbox) http.Handler {
	return tools.Handler(tools.Options{
		Pods: d.pods.Below(sb), Log: d.log,
		Note: func(text string) {
			d.noteOf(context.Background(), sb.Owner, sb.ID, sandbox.Event{Type: eventPods, Message: text})
		},
	})
}

// eventPods is the type of the events that tell what a sandbox's programs did with pods.
const eventPods = "pods"

// adopt takes over those of an earlier daemon. The manager has adopted their sandboxes.
func (p pods) adopt(ctx context.Context) error {
	if p.Service == nil {
		return nil
	}
	if err := p.Adopt(ctx); err != nil {
		return fmt.Errorf("adopt pods: %w", err)
	}
	return nil
}

// removed has pods ended whose sandbox was removed.
func (p pods) removed(owner string) {
	if p.Service != nil {
		p.Removed(owner)
	}
}

func (p pods) close() {
	if p.Service != nil {
		p.Close()
	}
}
