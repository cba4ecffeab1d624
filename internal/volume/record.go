package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// Names in the directory of volumes. One that begins with a dot is being made or
// deleted: the next service that opens the directory deletes it.
const (
	recordName = "volume.json"
	newPrefix  = durable.Prefix
	oldPrefix  = ".old-"

	maxRecord = 64 << 10
)

// make makes a volume's directory under another name, and gives it its own when
// all that is in it is on the disk. It says what of a directory was not copied.
func (s *Service) make(ctx context.Context, v Volume, size disk.Size) (skipped []string, err error) {
	images := s.images
	if v.Unenforced != "" {
		images = nil
	}
	dir := filepath.Join(s.root, newPrefix+v.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, beneath.RemoveAll(context.WithoutCancel(ctx), dir))
		}
	}()
	if err := tree.Make(ctx, images, dir, size); err != nil {
		return nil, err
	}
	if v.From.Ino != 0 {
		if skipped, err = s.fill(ctx, v, dir); err != nil {
			return nil, err
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := writeWhole(dir, b); err != nil {
		return nil, err
	}
	return skipped, durable.Rename(dir, filepath.Join(s.root, v.ID), 0)
}

// writeWhole writes the record of what was just made in dir, and has all of it on
// the disk: the image, too, is a file.
func writeWhole(dir string, record []byte) error {
	if t, err := tree.At(dir, "new"); err != nil {
		return err
	} else if t.Image != "" {
		f, err := os.OpenFile(t.Image, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return durable.Write(filepath.Join(dir, recordName), record, durable.Options{})
}

// discard makes a volume's directory none any more, and deletes it in the
// background: the host's file system takes its time over a disk's blocks.
func (s *Service) discard(id string) error {
	at := filepath.Join(s.root, oldPrefix+id)
	if err := durable.Rename(filepath.Join(s.root, id), at, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.deletions.Go(func() { s.empty(at) })
	return nil
}

// load reads every record. A volume whose record can't be read stays where it
// is, for its owner to look at; the others are none the worse for it.
func (s *Service) load() error {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return fmt.Errorf("read volumes: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(s.root, name)
		switch {
		case strings.HasPrefix(name, newPrefix), strings.HasPrefix(name, oldPrefix):
			s.deletions.Go(func() { s.empty(path) })
		case sandbox.ValidVolumeID(name):
			v, err := readRecord(path, name)
			if err != nil {
				s.log.Error("read volume", "dir", path, "error", err)
				continue
			}
			s.volumes[v.ID] = v
		}
	}
	return nil
}

// empty deletes a directory of ours. Where this process is not root, some of
// what is in it may belong to others of its ids.
func (s *Service) empty(dir string) {
	err := beneath.RemoveAll(context.Background(), dir)
	if err != nil && s.o.Delete != nil {
		err = s.o.Delete(dir)
	}
	if err != nil {
		s.log.Error("delete what is left of a volume", "dir", dir, "error", err)
	}
}

// readRecord reads the record in dir, which must be id's.
func readRecord(dir, id string) (Volume, error) {
	f, err := os.OpenFile(filepath.Join(dir, recordName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Volume{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return Volume{}, err
	}
	return parseRecord(b, id)
}

// parseRecord reads what make wrote, and nothing else.
func parseRecord(b []byte, id string) (Volume, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var v Volume
	if err := dec.Decode(&v); err != nil {
		return Volume{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Volume{}, errors.New("more follows the record")
	}
	if v.ID != id || v.Owner == "" {
		return Volume{}, errors.New("the record is another volume's")
	}
	if err := checkName(v.Name); err != nil {
		return Volume{}, err
	}
	return v, nil
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
