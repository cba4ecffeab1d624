package tool

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// collect answers with an archive of what is in a directory. An answer that
// breaks off, without the end mark of tar and with an aborted connection, is
// incomplete.
func (s *Service) collect(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-r.Context().Done():
		return
	}
	var q guest.CollectRequest
	c, err := s.begin(w, r, &q)
	if err != nil {
		s.refuse(w, err)
		return
	}
	rel, abs, err := c.file(q.Path)
	if err != nil {
		s.refuse(w, err)
		return
	}
	o := &outbox{c: c, rel: rel, abs: abs}
	if err := c.do(o.look); err != nil {
		s.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	o.tw = tar.NewWriter(w)
	if err := o.send(); err != nil {
		s.log.Warn("collecting files broke off", "path", abs, "err", err)
		panic(http.ErrAbortHandler) // the only way left to say so
	}
}

// outbox is a directory whose files are sent.
type outbox struct {
	c        *call
	rel, abs string
	tw       *tar.Writer

	names   []string // regular files, as far as the directories say
	answer  guest.CollectAnswer
	entries int
	dirs    int
	sent    int64
}

func (o *outbox) skip(name, reason string) {
	name, _ = repaired([]byte(name))
	o.answer.Skipped = append(o.answer.Skipped, guest.CollectSkip{Name: name, Reason: reason})
}

// look finds the files. More than the limits on entries is refused as a whole.
func (o *outbox) look(root int) error {
	fd, err := o.open(root)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return notDirectory(o.abs, err)
	}
	defer unix.Close(fd)
	if err := o.dir(fd, "", 1); err != nil {
		return explain(o.abs, err)
	}
	slices.Sort(o.names)
	return nil
}

func (o *outbox) open(root int) (int, error) {
	return beneath.OpenNoLinks(root, o.rel, unix.O_RDONLY|unix.O_DIRECTORY|openFlags)
}

func (o *outbox) dir(fd int, prefix string, depth int) error {
	if depth > tools.OutboxDepth {
		return failf(tools.ToolTooLarge, "more than %d directories within each other: %s", tools.OutboxDepth, short(prefix))
	}
	d := newDirents(fd)
	for {
		list, err := d.next()
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			if o.entries++; o.entries > tools.OutboxEntries {
				return failf(tools.ToolTooLarge, "more than %d files and directories", tools.OutboxEntries)
			}
			if err := o.entry(fd, e, prefix+e.name, depth); err != nil {
				return err
			}
		}
	}
}

func (o *outbox) entry(dir int, e dirent, rel string, depth int) error {
	if e.kind == unix.DT_UNKNOWN {
		e.kind = kindOf(dir, e.name)
	}
	switch e.kind {
	case unix.DT_REG:
		o.names = append(o.names, rel)
	case unix.DT_LNK:
		o.skip(rel, "it is a link")
	case unix.DT_DIR:
		if o.dirs++; o.dirs > tools.OutboxDirs {
			return failf(tools.ToolTooLarge, "more than %d directories", tools.OutboxDirs)
		}
		fd, err := beneath.OpenNoLinks(dir, e.name, unix.O_RDONLY|unix.O_DIRECTORY|openFlags)
		if err != nil {
			o.skip(rel, "it can't be opened")
			return nil
		}
		defer unix.Close(fd)
		return o.dir(fd, rel+"/", depth+1)
	default:
		o.skip(rel, "it is no regular file")
	}
	return nil
}

// send writes the archive.
func (o *outbox) send() error {
	for _, name := range o.names {
		if o.answer.Files == tools.MaxAttachments {
			o.skip(name, "there are too many files")
			continue
		}
		data, why, err := o.file(name)
		if err != nil {
			return err
		}
		if why != "" {
			o.skip(name, why)
			continue
		}
		if err := o.put(name, data); err != nil {
			return err
		}
		o.answer.Files++
	}
	if o.answer.Skipped == nil {
		o.answer.Skipped = []guest.CollectSkip{}
	}
	b, err := json.Marshal(o.answer)
	if err != nil {
		return err
	}
	if err := o.put(guest.CollectReport, b); err != nil {
		return err
	}
	return o.tw.Close()
}

func (o *outbox) put(name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Format: tar.FormatPAX, Name: name, Size: int64(len(data)), Mode: 0o644, ModTime: time.Unix(0, 0)}
	if err := o.tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := o.tw.Write(data)
	return err
}

// file reads one file whole, or says why not.
func (o *outbox) file(name string) (data []byte, why string, err error) {
	err = o.c.do(func(root int) error {
		dir, err := o.open(root)
		if err != nil {
			why = "its directory is gone"
			return nil
		}
		defer unix.Close(dir)
		fd, err := beneath.OpenNoLinks(dir, name, unix.O_RDONLY|openFlags)
		if err != nil {
			why = "it can't be opened"
			return nil
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		var st unix.Stat_t
		switch err := unix.Fstat(fd, &st); {
		case err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG:
			why = "it is no regular file"
		case st.Size > tools.MaxAttachmentBytes:
			why = "it is larger than 10 MiB"
		case st.Size == 0:
			why = "it is empty"
		case o.sent+st.Size > tools.MaxAttachmentsTotal:
			why = "the files together are larger than 50 MiB"
		}
		if why != "" {
			return nil
		}
		if data, err = all(f, tools.MaxAttachmentBytes); err != nil {
			why = "it can't be read"
		} else if len(data) > tools.MaxAttachmentBytes || o.sent+int64(len(data)) > tools.MaxAttachmentsTotal {
			why = "it grew while it was read"
		}
		return nil
	})
	if err == nil && why == "" {
		o.sent += int64(len(data))
	}
	return data, why, err
}
