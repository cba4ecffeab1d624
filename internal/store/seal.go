package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	keySize = 32 // bytes: AES-256
	// KeySuffix is added to the path of a database for that of its key.
	KeySuffix = ".key"
)

// sealer seals tokens with AES-256-GCM. The nonce is random, stands in front
// and is made anew for each write; the sandbox's ID is authenticated too, so
// that a token moved to another row does not open there.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}, err
}

func (s sealer) seal(text, id string) []byte {
	return s.aead.Seal(nil, nil, []byte(text), []byte(id))
}

func (s sealer) open(sealed []byte, id string) (string, error) {
	text, err := s.aead.Open(nil, nil, sealed, []byte(id))
	return string(text), err
}

// openKey opens the key file of a database and locks it for as long as it is
// open, which keeps every other process out. A file that is missing or empty
// is filled where create is set.
func openKey(path string, create bool) (_ *os.File, _ sealer, err error) {
	flags := os.O_RDWR | unix.O_NOFOLLOW
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		missing := sandbox.Errorf(sandbox.Internal, "the key file %s is missing", path).
			WithHint("put it back: the tokens of the sandboxes can't be read without it")
		missing.Err = err
		return nil, sealer{}, missing
	}
	if err != nil {
		return nil, sealer{}, fmt.Errorf("open key file: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := private(f); err != nil {
		return nil, sealer{}, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, sealer{}, sandbox.Errorf(sandbox.Conflict, "the state beside %s is in use by another daemon", path).
			WithHint("carboy daemon status")
	} else if err != nil {
		return nil, sealer{}, fmt.Errorf("lock key file: %w", err)
	}
	key, err := readKey(f, create)
	if err != nil {
		return nil, sealer{}, err
	}
	s, err := newSealer(key)
	return f, s, err
}

// readKey reads the key, or writes a new one into an empty file if create is set: in
// place, for the file is locked, and another in its place would not be. A key that a
// crash cut short has sealed nothing and is written anew.
func readKey(f *os.File, create bool) ([]byte, error) {
	key := make([]byte, keySize+1)
	n, err := io.ReadFull(f, key)
	switch {
	case n == keySize && errors.Is(err, io.ErrUnexpectedEOF):
		return key[:keySize], nil
	case err == nil, !create && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)):
		return nil, sandbox.Errorf(sandbox.Internal, "the key file %s is damaged", f.Name()).
			WithHint("restore it from a backup")
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("read key file: %w", err)
	}
	key = key[:keySize]
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if _, err := f.WriteAt(key, 0); err != nil {
		return nil, sandbox.DiskError(fmt.Errorf("write key file: %w", err), "the disk of "+f.Name())
	}
	if err := f.Sync(); err != nil {
		return nil, sandbox.DiskError(fmt.Errorf("sync key file: %w", err), "the disk of "+f.Name())
	}
	return key, nil
}

// private refuses a file that is no regular one, is another user's, or that
// others may read or write.
func private(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return sandbox.Errorf(sandbox.Denied, "%s is not a regular file", f.Name())
	case int(st.Uid) != os.Geteuid():
		return sandbox.Errorf(sandbox.Denied, "%s belongs to another user", f.Name()).
			WithHint("chown %d %s", os.Geteuid(), f.Name())
	case st.Mode&0o077 != 0:
		return sandbox.Errorf(sandbox.Denied, "%s is open to other users", f.Name()).
			WithHint("chmod 600 %s", f.Name())
	}
	return nil
}
