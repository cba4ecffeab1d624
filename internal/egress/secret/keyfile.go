package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const maxKeyFile = 4 << 10

// errNoKey says that there is no key file.
var errNoKey = errors.New("no key file")

// readKey reads the key file at path, and refuses one that is not this user's
// alone.
func readKey(path string) (*age.X25519Identity, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoKey
	}
	if err != nil {
		return nil, fmt.Errorf("open the secrets' key file: %w", err)
	}
	defer f.Close()
	if err := private(f, unix.S_IFREG); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	defer clear(text)
	if err != nil {
		return nil, fmt.Errorf("read the secrets' key file: %w", err)
	}
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		if id, err := age.ParseX25519Identity(string(line)); err == nil {
			return id, nil
		}
		break // the parser's error could repeat the line
	}
	return nil, sandbox.Errorf(sandbox.Internal, "the secrets' key file %s is damaged", path).WithHint("restore it from a backup")
}

// makeKey writes a new key to o.KeyFile, which is complete once it is there, and
// returns the key that is there in the end.
func makeKey(o Options, fault func(string)) (*age.X25519Identity, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fmt.Errorf("make a key for secrets: %w", err)
	}
	path := o.KeyFile
	dir := filepath.Dir(path)
	if err := o.MakeDir(dir, 0o700); err != nil {
		return nil, sandbox.DiskError(fmt.Errorf("make the directory of the secrets' key: %w", err), "the disk of "+dir)
	}
	text := "# The key of carboy's secrets. Without it they can't be read; keep a copy.\n" + id.String() + "\n"
	err = durable.Write(path, []byte(text), durable.Options{
		Keep: true, // what somebody else has put there meanwhile
		Step: func(step string) error {
			fault("key-" + step)
			return nil
		},
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, sandbox.DiskError(fmt.Errorf("write the secrets' key file: %w", err), "the disk of "+path)
	}
	return readKey(path)
}

// private refuses what is not of the kind, is another user's, or is open to
// others.
func private(f *os.File, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	switch {
	case st.Mode&unix.S_IFMT != kind:
		return sandbox.Errorf(sandbox.Denied, "%s is neither a file nor a directory of carboy's", f.Name())
	case int(st.Uid) != os.Geteuid():
		return sandbox.Errorf(sandbox.Denied, "%s belongs to another user", f.Name()).
			WithHint("chown %d %s", os.Geteuid(), f.Name())
	case st.Mode&0o077 != 0:
		return sandbox.Errorf(sandbox.Denied, "%s is open to other users", f.Name()).
			WithHint("chmod go= %s", f.Name())
	}
	return nil
}
