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

// dirOlder is where versions before package control had the agent's socket: in
// a directory of the host's that the guest's kernel could write to.
const dirOlder = "ctl"

// errOlder is why an instance that such a version started and that still runs can't
// be reached. Nothing that answers there is believed.
var errOlder = errors.New("an older version of carboy started this sandbox, and this one does not trust the way to it")

// olderError is errOlder for whoever asked for the instance.
func olderError(id string) error {
	return &sandbox.Error{
		Kind: sandbox.Conflict, Msg: errOlder.Error(), Err: errOlder,
		Hint: "carboy stop " + id + " && carboy start " + id + "  # its files stay, what runs in it ends",
	}
}

// older reports whether the instance at path runs as such a version started it.
func older(path string) bool {
	_, err := os.Lstat(filepath.Join(path, dirOlder, fileSocket))
	return err == nil
}

// syncOlder asks what answers in such an instance to write back before it is ended,
// and believes no word of it: an answer only means that the wait is over.
func syncOlder(ctx context.Context, path string) error {
	dir, err := os.OpenFile(filepath.Join(path, dirOlder), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
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
