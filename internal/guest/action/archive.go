package action

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

// Bounds of an archive.
const (
	maxArchive = 4 << 30  // bytes, compressed
	maxEntries = 1 << 20  // that are extracted
	maxContent = 64 << 30 // bytes that are extracted
	maxSkipped = 100      // names in a reply of what was left out
	maxName    = 256      // bytes of each

	dirMode = 0o777 // before the umask

	idleTime  = time.Minute           // for the next bytes of an archive, either way
	extraTime = 20 * time.Millisecond // for what should not follow one
)

// extract unpacks the archive that follows the request.
func (c *call) extract(q *action.ExtractRequest) (any, error) {
	if q.ArchiveSize <= 0 || q.ArchiveSize > maxArchive {
		return nil, fmt.Errorf("archive_size is %d: it has to be from 1 to %d", q.ArchiveSize, int64(maxArchive))
	}
	a, dir, err := c.place(q.Destination)
	if err != nil {
		return nil, err
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(idleTime))
	if err := c.endLine(); err != nil {
		return nil, err
	}
	body := &announced{c: c, size: q.ArchiveSize}
	var res archive.Result
	err = c.s.opts.Files.Stream(c.ctx, a, func() error {
		res, err = unpack(c, body, dir)
		return err
	})
	if body.err != nil {
		err = body.err
	}
	if err == nil {
		err = body.end()
	}
	if err != nil && res.Entries > 0 {
		err = fmt.Errorf("%w (%d entries were extracted before)", err, res.Entries)
	}
	if err != nil {
		return nil, err
	}
	return &action.ExtractReply{Destination: dir, EntryCount: int(res.Entries), BytesWritten: res.Bytes, Left: left(res)}, nil
}

// unpack runs with the user's rights.
func unpack(c *call, body *announced, dir string) (res archive.Result, err error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return res, err
	}
	zip, err := gzip.NewReader(body)
	if err != nil {
		return res, fmt.Errorf("the archive is no gzip: %w", err)
	}
	return archive.Extract(c.ctx, zip, dir, archive.ExtractOptions{MaxEntries: maxEntries, MaxBytes: maxContent})
}

// announced is an archive of a size that was said before.
type announced struct {
	c    *call
	size int64
	came int64
	err  error // why it did not come as it was said
}

func (b *announced) Read(p []byte) (int, error) {
	left := b.size - b.came
	if b.err != nil {
		return 0, b.err
	}
	if left == 0 {
		return 0, io.EOF
	}
	_ = b.c.conn.SetReadDeadline(time.Now().Add(idleTime))
	n, err := b.c.rest.Read(p[:min(int64(len(p)), left)])
	b.came += int64(n)
	switch {
	case err == nil || b.came == b.size:
		return n, nil
	case errors.Is(err, io.EOF):
		b.err = fmt.Errorf("the archive is shorter than it says: %d bytes of %d came", b.came, b.size)
	default:
		b.err = fmt.Errorf("read the archive after %d bytes of %d: %w", b.came, b.size, err)
	}
	return n, b.err
}

// end makes sure that the archive is over where it says: neither before, nor behind, as
// far as that has come.
func (b *announced) end() error {
	if over := b.size - b.came; over > 0 {
		return fmt.Errorf("archive_size is %d, and the archive ends %d bytes before", b.size, over)
	}
	_ = b.c.conn.SetReadDeadline(time.Now().Add(extraTime))
	if n, _ := b.c.rest.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("the archive is longer than the %d bytes that it says", b.size)
	}
	return nil
}

// left says what was left out.
func left(res archive.Result) action.Left {
	out := action.Left{SkippedCount: int64(len(res.Skipped)) + res.Left}
	for _, skip := range res.Skipped[:min(len(res.Skipped), maxSkipped)] {
		text, _ := fit([]byte(skip.Name), maxName)
		out.Skipped = append(out.Skipped, text+": "+skip.Reason)
	}
	return out
}

// export packs what is at a path, and sends it behind the reply. The archive is made
// whole first, in a file without a name on the sandbox's disk, for the reply has its size.
func (c *call) export(q *action.ExportRequest) (any, error) {
	if q.Path == "" {
		return nil, errors.New("the path is empty")
	}
	a, p, err := c.place(q.Path)
	if err != nil {
		return nil, err
	}
	reply := &action.ExportReply{Path: p}
	var made *os.File
	err = c.s.opts.Files.Stream(c.ctx, a, func() (err error) {
		made, err = pack(c, p, a.Home, reply)
		return err
	})
	if made != nil {
		defer made.Close()
	}
	if err != nil {
		return nil, err
	}
	if err := c.reply(reply); err != nil {
		return nil, err
	}
	_, err = io.Copy(sender{c}, made)
	return nil, err
}

// pack makes the archive, with the user's rights. The file is returned along with an
// error, too.
func pack(c *call, p, home string, reply *action.ExportReply) (made *os.File, err error) {
	st, err := os.Lstat(p)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the path does not exist: %s", p)
	}
	if err != nil {
		return nil, err
	}
	if reply.ArtifactType = kindOf(st.Mode()); reply.ArtifactType == "" {
		return nil, fmt.Errorf("the path is neither a file, a directory nor a link: %s", p)
	}
	if made, err = spool(home); err != nil {
		return nil, fmt.Errorf("keep the archive: %w", err)
	}
	out := &bounded{f: made}
	zip := gzip.NewWriter(out)
	res, err := archive.Create(c.ctx, zip, p, archive.CreateOptions{})
	if err == nil {
		err = zip.Close()
	}
	if err == nil {
		_, err = made.Seek(0, io.SeekStart)
	}
	if errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("%w: the sandbox's disk has no room for the archive", err)
	}
	reply.ArchiveSize, reply.EntryCount, reply.BytesWritten, reply.Left = out.n, int(res.Entries), res.Bytes, left(res)
	return made, err
}

// spool makes a file in which an archive waits until its size is known.
func spool(home string) (f *os.File, err error) {
	var first error
	for _, dir := range []string{"/tmp", "/var/tmp", home} {
		if f, err = nameless(dir); err == nil {
			return f, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}

// nameless makes a file that has no name, which goes when it is closed.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), path.Join(dir, "archive")), nil
	}
	f, err := os.CreateTemp(dir, ".archive-") // not every file system has them
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// bounded is a file of at most maxArchive bytes.
type bounded struct {
	f *os.File
	n int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.n+int64(len(p)) > maxArchive {
		return 0, fmt.Errorf("the archive would have more than %d bytes: export a part", int64(maxArchive))
	}
	n, err := b.f.Write(p)
	b.n += int64(n)
	return n, err
}

// sender sends to a caller who takes it, however slowly.
type sender struct{ c *call }

func (s sender) Write(p []byte) (int, error) {
	_ = s.c.conn.SetWriteDeadline(time.Now().Add(idleTime))
	return s.c.conn.Write(p)
}
