package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	suffix     = ".age"
	tempPrefix = ".new-"
	// maxRecord bounds a file: a value, a command and what age adds.
	maxRecord = 512 << 10
)

// record is what one file holds, encrypted. Place and Name are where the file
// belongs: a file that was moved is refused.
type record struct {
	Version int       `json:"version"`
	Place   string    `json:"place"`
	Name    string    `json:"name"`
	Owner   string    `json:"owner"` // whose rights files and commands are used with
	Value   []byte    `json:"value,omitempty"`
	File    string    `json:"file,omitempty"`
	Command []string  `json:"command,omitempty"`
	TTL     int64     `json:"ttl_ns,omitempty"`
	Key     bool      `json:"key,omitempty"`
	Created time.Time `json:"created"`
	Rotated time.Time `json:"rotated"`
}

const recordVersion = 1

// source returns where the record's value comes from. Its value is a copy.
func (r *record) source() Source {
	s := Source{File: r.File, Command: r.Command, TTL: time.Duration(r.TTL), Key: r.Key}
	if len(r.Value) > 0 {
		s.Value = NewValue(r.Value)
	}
	return s
}

// wipe overwrites the value.
func (r *record) wipe() { clear(r.Value) }

// errNoRecord says that there is none of that name at that place.
var errNoRecord = errors.New("no such record")

// load reads the record name below place, or fails with errNoRecord.
func (s *Store) load(place, name string) (*record, error) {
	file := path.Join(place, name+suffix)
	f, err := s.root.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoRecord
	}
	if err != nil {
		return nil, fmt.Errorf("open secret %s: %w", name, err)
	}
	defer f.Close()
	if err := private(f, unix.S_IFREG); err != nil {
		return nil, err
	}
	plain, err := age.Decrypt(io.LimitReader(f, maxRecord), s.key)
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(plain, maxRecord))
		defer clear(text)
	}
	if err != nil {
		return nil, unreadable(name, err)
	}
	var r record
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	// A decoder's error can repeat what it read: it is not passed on.
	if dec.Decode(&r) != nil || r.Version != recordVersion {
		return nil, unreadable(name, errors.New("a record of another version"))
	}
	if r.Place != place || r.Name != name {
		r.wipe()
		return nil, unreadable(name, errors.New("a record of another place"))
	}
	return &r, nil
}

func unreadable(name string, cause error) error {
	e := sandbox.Errorf(sandbox.Internal, "secret %s can't be read: its record is damaged, or the key is another", name).
		WithHint("carboy secret add %s", name)
	e.Err = cause
	return e
}

// save writes r to its place: all of it, or nothing.
func (s *Store) save(r *record) (err error) {
	text, err := json.Marshal(r)
	defer clear(text)
	if err != nil {
		return fmt.Errorf("encode secret %s: %w", r.Name, err)
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, s.key.Recipient())
	if err == nil {
		_, err = w.Write(text)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return fmt.Errorf("encrypt secret %s: %w", r.Name, err)
	}
	if err := s.root.MkdirAll(r.Place, 0o700); err != nil {
		return sandbox.DiskError(fmt.Errorf("make the directory of secrets: %w", err), "the disk of "+s.dir)
	}
	for _, above := range []string{".", path.Dir(r.Place)} {
		if err := s.syncBelow(above); err != nil {
			return err
		}
	}
	if err := s.writeBelow(r.Place, r.Name+suffix, sealed.Bytes()); err != nil {
		return sandbox.DiskError(fmt.Errorf("write secret %s: %w", r.Name, err), "the disk of "+s.dir)
	}
	return nil
}

func (s *Store) writeBelow(place, name string, sealed []byte) error {
	d, err := s.root.Open(place)
	if err != nil {
		return err
	}
	dir := beneath.In(d)
	defer dir.Close()
	return durable.WriteIn(dir, name, sealed, durable.Options{Step: func(step string) error {
		s.fault(step)
		return nil
	}})
}

func (s *Store) syncBelow(place string) error {
	d, err := s.root.Open(place)
	if err != nil {
		return fmt.Errorf("open the directory of secrets: %w", err)
	}
	dir := beneath.In(d)
	defer dir.Close()
	if err := durable.Sync(dir); err != nil {
		return sandbox.DiskError(fmt.Errorf("sync the directory of secrets: %w", err), "the disk of "+s.dir)
	}
	return nil
}

// names lists the secrets below place, and removes what a crash left there if
// sweep is set.
func (s *Store) names(place string, sweep bool) (names []string, err error) {
	entries, err := s.entries(place)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if sweep && strings.HasPrefix(e.Name(), durable.Prefix) {
			_ = s.root.Remove(path.Join(place, e.Name()))
		}
		if name, ok := strings.CutSuffix(e.Name(), suffix); ok && CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// entries reads a directory, which need not be there. They are sorted.
func (s *Store) entries(place string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.root.FS(), place)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the directory of secrets: %w", err)
	}
	return entries, nil
}
