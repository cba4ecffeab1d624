package template

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	uploadLife = time.Hour // of a link
	maxUploads = 200       // links of one owner at the same time
	filesDir   = "files"
	logsDir    = "logs"
)

// upload is a link by which one archive may be sent, once.
type upload struct {
	owner, hash, source string
	until               time.Time
}

// archives are what clients send for COPY steps, each owner's apart, and the
// links by which they may.
type archives struct {
	dir     string
	now     func() time.Time
	most    int64 // bytes of one
	ofOwner int64 // bytes of one owner's

	mu      sync.Mutex
	uploads map[string]upload        // by token
	coming  map[string]chan struct{} // slots, by owner
}

// FileLink says whether the archive with that hash is there, and returns a
// token by which it may be sent, anew too: once, for an hour, and while its source
// lives, the key of who asks; "" lives for ever.
func (s *Service) FileLink(_ context.Context, c sandbox.Caller, source, ref, hash string) (present bool, token string, err error) {
	if !validHash(hash) {
		return false, "", sandbox.Errorf(sandbox.Invalid, "files hash %.80q: not 64 hexadecimal digits", hash)
	}
	s.mu.Lock()
	_, _, err = s.findLocked(c, ref, false)
	s.mu.Unlock()
	if err != nil {
		return false, "", err
	}
	return s.archives.link(c.Owner, source, hash)
}

func (a *archives) link(owner, source, hash string) (present bool, token string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = os.Stat(a.path(owner, hash))
	present = err == nil
	now, n := a.now(), 0
	for token, u := range a.uploads {
		if now.After(u.until) {
			delete(a.uploads, token)
		} else if u.owner == owner {
			n++
		}
	}
	if n >= maxUploads {
		return false, "", sandbox.Errorf(sandbox.Exhausted, "files: %d links wait for their archives", n).WithHint("use them, or wait for an hour")
	}
	token = rand.Text() + rand.Text()
	a.uploads[token] = upload{owner: owner, hash: hash, source: source, until: now.Add(uploadLife)}
	return present, token, nil
}

func validHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == s
}

// path is where an owner's archive lies. Hashes are what clients say they
// are, so nobody reads another's.
func (a *archives) path(owner, hash string) string {
	return filepath.Join(a.of(owner), hash)
}

// of is the directory of an owner's archives.
func (a *archives) of(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return filepath.Join(a.dir, hex.EncodeToString(sum[:16]))
}

// Upload takes the archive for which token was given, of size bytes, or of a
// size that is not known where that is negative. The token is used up.
func (s *Service) Upload(ctx context.Context, token string, size int64, r io.Reader) error {
	a := s.archives
	a.mu.Lock()
	u, ok := a.uploads[token]
	delete(a.uploads, token)
	a.mu.Unlock()
	if !ok || a.now().After(u.until) || u.source != "" && s.o.Live != nil && !s.o.Live(u.source) {
		return sandbox.Errorf(sandbox.NotFound, "this link is not for an upload, or was used").WithHint("ask for another")
	}
	if size > a.most {
		return tooLarge(a.most)
	}
	return a.add(ctx, u.owner, u.hash, r)
}

func tooLarge(most int64) error {
	return sandbox.Errorf(sandbox.Invalid, "archive: larger than %d bytes", most).
		WithHint("leave files out by a .dockerignore, or fetch them in a RUN step")
}

// AddFile keeps an archive for an owner's COPY steps.
func (s *Service) AddFile(ctx context.Context, owner, hash string, r io.Reader) error {
	return s.archives.add(ctx, owner, hash, r)
}

func (a *archives) add(ctx context.Context, owner, hash string, r io.Reader) error {
	arrived, err := a.mayCome(ctx, owner)
	if err != nil {
		return err
	}
	defer arrived()
	dir := a.of(owner)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return diskError(err)
	}
	at, err := beneath.OpenDir(dir)
	if err != nil {
		return diskError(err)
	}
	defer at.Close()
	f, err := durable.Create(at, durable.Options{})
	if err != nil {
		return diskError(err)
	}
	defer f.Discard()
	n, err := io.Copy(f, io.LimitReader(reader{ctx, r}, a.most+1))
	if err != nil {
		return diskError(err)
	}
	if n > a.most {
		return tooLarge(a.most)
	}
	if err := a.makeRoom(dir, n); err != nil {
		return err
	}
	now := a.now()
	return diskError(errors.Join(os.Chtimes(f.Name(), now, now), f.Commit(at, hash)))
}

// mayCome waits until another archive of owner's may be received: what has not
// come whole is not counted yet.
func (a *archives) mayCome(ctx context.Context, owner string) (arrived func(), err error) {
	a.mu.Lock()
	slots := a.coming[owner]
	if slots == nil {
		slots = make(chan struct{}, maxComing)
		a.coming[owner] = slots
	}
	a.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}

// makeRoom deletes what was used longest ago of an owner's archives, until n
// more bytes are within bounds.
func (a *archives) makeRoom(dir string, n int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return diskError(err)
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && validHash(e.Name()) {
			all = append(all, info)
			n += info.Size()
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return cmp.Compare(a.ModTime().UnixNano(), b.ModTime().UnixNano()) })
	for _, info := range all {
		if n <= a.ofOwner {
			break
		}
		if err := os.Remove(filepath.Join(dir, info.Name())); err != nil {
			return diskError(err)
		}
		n -= info.Size()
	}
	return nil
}

// open opens an archive that was sent, which counts as its use.
func (a *archives) open(owner, hash string) (*os.File, error) {
	if !validHash(hash) {
		return nil, sandbox.Errorf(sandbox.Invalid, "files hash %.80q: not 64 hexadecimal digits", hash)
	}
	path := a.path(owner, hash)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "the files to be copied were not uploaded").WithHint("upload them again")
	}
	if err != nil {
		return nil, err
	}
	now := a.now()
	_ = os.Chtimes(path, now, now)
	return f, nil
}

func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e := sandbox.Errorf(sandbox.Exhausted, "the disk of carboy's state is full").WithHint("free some space there, then try again")
		e.Err = err
		return e
	}
	if err != nil {
		return fmt.Errorf("keep an archive: %w", err)
	}
	return nil
}

// count returns how many archives an owner has, and their bytes.
func (a *archives) count(owner string) (n int, size int64, err error) {
	entries, err := os.ReadDir(a.of(owner))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && validHash(e.Name()) {
			n++
			size += info.Size()
		}
	}
	return n, size, nil
}

// remove removes the archives that an owner sent.
func (a *archives) remove(owner string) error {
	return a.removeFound(filepath.Join(a.of(owner), "*"), func(string) bool { return true })
}

// removeOld removes those that were not used for long.
func (a *archives) removeOld() error {
	return a.removeFound(filepath.Join(a.dir, "*", "*"), func(path string) bool {
		st, err := os.Lstat(path)
		return err == nil && a.now().Sub(st.ModTime()) > maxUnused
	})
}

func (a *archives) removeFound(pattern string, old func(path string) bool) error {
	found, err := filepath.Glob(pattern)
	for _, path := range found {
		if validHash(filepath.Base(path)) && old(path) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// removeParts removes those that did not come whole.
func (a *archives) removeParts() error {
	parts, err := filepath.Glob(filepath.Join(a.dir, "*", durable.Prefix+"*"))
	for _, p := range parts {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}
