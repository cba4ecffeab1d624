package instance

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// dirLegacy is where versions before package control had the agent's socket: in
// a directory of the host's that the guest's kernel could write to.
const dirLegacy = "ctl"

// errLegacy is why an instance that such a version started and that still runs can't
// be reached. Nothing that answers there is believed.
var errLegacy = errors.New("an older version of carboy started this sandbox, and this one does not trust the way to it")

// legacyError is errLegacy for a caller.
func legacyError(id string) error {
	return &sandbox.Error{
		Kind: sandbox.Conflict, Msg: errLegacy.Error(), Err: errLegacy,
		Hint: "carboy stop " + id + " && carboy start " + id + "  # its files stay, what runs in it ends",
	}
}

// legacy reports whether the instance at path runs as such a version started it.
func legacy(path string) bool {
	_, err := os.Lstat(filepath.Join(path, dirLegacy, fileSocket))
	return err == nil
}

// syncLegacy asks what answers in such an instance to write back before it is ended,
// and believes no word of it: an answer only means that the wait is over.
func syncLegacy(ctx context.Context, path string) error {
	dir, err := os.OpenFile(filepath.Join(path, dirLegacy), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = agent.New(func(ctx context.Context) (net.Conn, error) { return home.DialAt(ctx, dir, fileSocket) }).Sync(ctx)
	if _, answered := errors.AsType[*agent.StatusError](err); answered {
		return nil
	}
	return err
}
