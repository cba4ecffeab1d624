package secret

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
	"golang.org/x/sys/unix"

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
	temp := path + ".new-" + rand.Text()
	defer os.Remove(temp)
	text := "# The key of carboy's secrets. Without it they can't be read; keep a copy.\n" + id.String() + "\n"
	if err := writeSynced(temp, text); err != nil {
		return nil, sandbox.DiskError(fmt.Errorf("write the secrets' key file: %w", err), "the disk of "+path)
	}
	fault("key-written")
	// A link never replaces a key that somebody else has put there meanwhile.
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("put the secrets' key file in place: %w", err)
	}
	fault("key-linked")
	if err := syncDir(dir); err != nil {
		return nil, err
	}
	return readKey(path)
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// removeLeft removes what a crash left of makeKey.
func removeLeft(path string) {
	left, err := filepath.Glob(globQuoted(path) + ".new-*")
	if err != nil {
		return
	}
	for _, l := range left {
		_ = os.Remove(l)
	}
}

// globQuoted has path match itself alone.
func globQuoted(path string) string {
	var b []byte
	for _, c := range []byte(path) {
		if c == '*' || c == '?' || c == '[' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
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
