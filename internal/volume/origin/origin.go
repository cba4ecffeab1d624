// Package origin fills a volume with a copy of a directory of the host, and tells what was changed in it since.
//
// Processes of their own do both, and read out all that a volume holds: each mounts the volume for itself, beside the
// sandboxes that have it. What the copy began as is noted in the volume, where no sandbox sees it.
//
// The package refuses a directory that is not the one which was accepted, and reads it with its owner's rights. It doesn't know who may
// have which directory copied.
package origin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"

	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// The names by which this binary is executed again.
const (
	roleFill    = "carboy-volume-fill"
	roleChanges = "carboy-volume-changes"
	roleExport  = "carboy-volume-export"
)

// Roles are those of this package.
func Roles() role.Table {
	return role.Table{
		roleFill:    func() error { return fillMain(os.Stdin, os.Stdout) },
		roleChanges: func() error { return changesMain(os.Stdin, os.Stdout) },
		roleExport:  func() error { return exportMain(os.Stdin, os.Stdout) },
	}
}

// Runner starts the processes. *role.Runner is one, and documents each method.
type Runner interface {
	Rootless() bool
	Run(ctx context.Context, name string, in io.Reader, out io.Writer, files ...*os.File) error
	Ask(ctx context.Context, name string, order, answer any, more io.Reader, files ...*os.File) error
	AskNews(ctx context.Context, name string, order, answer any, more io.Reader, news func(json.RawMessage), files ...*os.File) error
}

// Volume is one, as those processes find it.
type Volume struct {
	Tree tree.Tree       `json:"tree"`
	From sandbox.HostDir `json:"from"` // what it is, or began as, a copy of
}

// order is what a process is told.
type order struct {
	Volume
	Rootless bool                   `json:"rootless"`
	Options  sandbox.ChangesOptions `json:"options,omitzero"`
}

// Filled says what Fill did.
type Filled struct {
	Files   int64    `json:"files"` // regular files, symlinks and directories
	Bytes   int64    `json:"bytes"` // of data
	Skipped []string `json:"skipped,omitempty"`
	More    int64    `json:"more,omitempty"` // that were skipped, and not named
}

// Fill copies v.From into the volume, which is empty. It tells sandbox.CopiedOf(ctx) how far that is. Where the volume is too small the
// error is Exhausted. After an error the volume is of no use.
func Fill(ctx context.Context, r Runner, v Volume) (done Filled, err error) {
	tell := sandbox.CopiedOf(ctx)
	news := func(raw json.RawMessage) {
		var c sandbox.Copied
		if json.Unmarshal(raw, &c) == nil {
			tell(c)
		}
	}
	err = r.AskNews(ctx, roleFill, order{Volume: v, Rootless: r.Rootless()}, &done, nil, news)
	return done, err
}

// Changes writes what was changed in a volume since it was filled to w, as workspace.WriteChanges does.
func Changes(ctx context.Context, r Runner, v Volume, o sandbox.ChangesOptions, w io.Writer) error {
	return tell(ctx, r, roleChanges, order{Volume: v, Rootless: r.Rootless(), Options: o}, w)
}

// Export writes all that a volume holds to w, as an archive of one directory: see archive.Create.
func Export(ctx context.Context, r Runner, v Volume, w io.Writer) error {
	return tell(ctx, r, roleExport, order{Volume: v, Rootless: r.Rootless()}, w)
}

func tell(ctx context.Context, r Runner, name string, o order, w io.Writer) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return r.Run(ctx, name, bytes.NewReader(raw), w)
}
