package template

import (
	"context"
	"io"
	"net"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Store keeps records. The Service is its only writer, and reads it once.
type Store interface {
	// PutTemplate fails with Conflict where its owner has another of its name.
	PutTemplate(ctx context.Context, t Template) error
	Templates(ctx context.Context) ([]Template, error)
	// DeleteTemplate deletes its builds and tags too.
	DeleteTemplate(ctx context.Context, id string) error
	PutBuild(ctx context.Context, r Record) error
	Builds(ctx context.Context) ([]Record, error)
	DeleteBuild(ctx context.Context, id string) error
	PutTag(ctx context.Context, t Tag) error
	DeleteTag(ctx context.Context, template, name string) error
	Tags(ctx context.Context) ([]Tag, error)
	PutCached(ctx context.Context, c Cached) error
	Cache(ctx context.Context) ([]Cached, error)
	DeleteCached(ctx context.Context, key string) error
}

// Manager is what builds need of the domain.
type Manager interface {
	Create(ctx context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
	Remove(ctx context.Context, c sandbox.Caller, ref string, force bool) error
	Dial(ctx context.Context, c sandbox.Caller, ref string, port int) (net.Conn, error)
	NetLog(ctx context.Context, c sandbox.Caller, ref string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error
	Snapshot(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, c sandbox.Caller, id string) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, c sandbox.Caller) ([]sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, c sandbox.Caller, id string) error
	SnapshotDepth(id string) int
}

var _ Manager = (*sandbox.Manager)(nil)

// Images finds the images that builds start from.
type Images interface {
	// Image returns the image that q names, pinned as a Spec has it, and pulls
	// it where that is not there. progress is told in words.
	Image(ctx context.Context, q ImageQuery, progress func(string)) (pinned string, err error)
}

// ImageQuery names an image.
type ImageQuery struct {
	Owner, Name string
	Auth        *Auth
	Outside     bool // as in Plan
	Fresh       bool // it is pulled, even where it is there
}

// Guest is a sandbox in which a step runs. Its errors are not for users, but
// for a Refusal.
type Guest interface {
	// Run runs a command by a login shell, and hands on its output as it comes.
	// Without Shell it is run as it is.
	Run(ctx context.Context, cmd Command, out func([]byte)) (Exit, error)
	// Extract puts a tar below dir, for owner. What is refused is a Refusal.
	Extract(ctx context.Context, dir, owner string, tar io.Reader) error
	Close()
}

// Command is one to run.
type Command struct {
	Shell     string   // for a login shell; or
	Argv      []string // a program and what it is given
	User, Cwd string
	Env       map[string]string
}

// Exit is how a command ended.
type Exit struct {
	Code int
	Text string // "status 1"
}

// Refusal is the text of an error that a user may read.
type Refusal struct{ Text string }

// Error returns the text.
func (r *Refusal) Error() string { return r.Text }
