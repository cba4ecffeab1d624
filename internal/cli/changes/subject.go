package changes

import (
	"context"
	"io"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// subject is what has changes: a sandbox with a view of a directory, or a volume that began as a copy of one.
type subject struct {
	ID, Name string
	Dir      string // what it is compared with
	volume   bool
}

func ofSandbox(sb *api.Sandbox) subject {
	return subject{ID: sb.ID, Name: sb.Name, Dir: sb.Workspace.Source}
}

func ofVolume(v *api.Volume) subject {
	return subject{ID: v.ID, Name: v.Name, Dir: v.From, volume: true}
}

// known reports whether something may be remembered under an ID.
func known(id string) bool { return sandbox.ValidID(id) || sandbox.ValidVolumeID(id) }

// String is what errors call it.
func (s subject) String() string {
	if s.volume {
		return "volume " + shell.Word(s.Name)
	}
	return "sandbox " + shell.Word(s.Name)
}

// command is what a user types to do something with its changes. Flags begin with a space.
func (s subject) command(do, flags string) string {
	if s.volume {
		do = "volume " + do
	}
	return "carboy " + do + flags + " " + shell.Word(s.Name)
}

// changes streams them. The caller closes that.
func (s subject) changes(ctx context.Context, svc *client.Client, req api.ChangesRequest) (io.ReadCloser, error) {
	ask := svc.Changes
	if s.volume {
		ask = svc.VolumeChanges
	}
	stream, err := ask(ctx, s.ID, req)
	if err != nil {
		return nil, usage.Named(err, s.ID, s.Name)
	}
	return stream, nil
}
