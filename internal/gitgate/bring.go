package gitgate

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// bring gets what leads to want from upstream.
func (m *mirror) bring(ctx context.Context, c conversation, want []string) error {
	a := c.advert()
	if !a.caps["side-band-64k"] || !a.caps["ofs-delta"] {
		return errors.New("upstream's git is too old: it has no side-band-64k or no ofs-delta")
	}
	request := m.request(a, want)
	answer, err := c.call(ctx, bytes.NewReader(request), int64(len(request)))
	if err != nil {
		return err
	}
	p, err := m.receive(answer, a.format)
	if err != nil {
		return err
	}
	if err := m.index(ctx, p); err != nil {
		return err
	}
	if lack, err := m.missing(ctx, want); err != nil || len(lack) > 0 {
		return errors.Join(err, errors.New("upstream did not send what its refs lead to"))
	}
	return nil
}

// request is what upstream is asked for.
func (m *mirror) request(a *advert, want []string) (b []byte) {
	words := " side-band-64k ofs-delta no-progress agent=carboy"
	if a.caps["object-format"] {
		words += " object-format=" + string(a.format)
	}
	for _, id := range want {
		b = pktline.Append(b, "want "+id+words+"\n")
		words = ""
	}
	b = pktline.AppendFlush(b)
	var have []string
	if m.known != nil {
		have = slices.Compact(slices.Sorted(maps.Values(m.known.refs)))
	}
	for _, id := range have[:min(len(have), maxHave)] {
		b = pktline.Append(b, "have "+id+"\n")
	}
	return pktline.Append(b, "done\n")
}

// receive reads upstream's answer, and keeps its pack.
func (m *mirror) receive(answer io.Reader, f pack.Format) (*received, error) {
	d, err := negotiated(pktline.NewReader(answer))
	if err != nil {
		return nil, err
	}
	room, err := m.room()
	if err != nil {
		return nil, err
	}
	return m.keep(d, f, pack.Limits{
		Bytes: min(room, maxMirrorPack), Objects: maxObjects, Object: maxMirrorObject, Meta: maxMeta, Unpacked: 16 * maxMirrorPack, Depth: maxDepth,
	})
}

// negotiated reads what upstream answers to what the mirror has: lines, up to the first of
// a band. There is one for nothing in common, and for some of it several.
func negotiated(lines *pktline.Reader) (*demux, error) {
	for range maxHave + 2 {
		kind, data, err := lines.Next()
		if err != nil {
			return nil, lost(err)
		}
		text := string(data)
		switch says, failed := strings.CutPrefix(text, "ERR "); {
		case failed:
			return nil, &remoteError{words(says)}
		case kind == pktline.Data && len(data) > 0 && data[0] <= pktline.BandError:
			d := &demux{lines: lines}
			return d, d.take(data)
		case kind != pktline.Data || !strings.HasPrefix(text, "ACK ") && text != "NAK\n":
			return nil, errors.New("upstream answers otherwise than git does")
		}
	}
	return nil, errors.New("upstream answers otherwise than git does")
}

// keep writes a pack beside the mirror.
func (m *mirror) keep(r io.Reader, f pack.Format, l pack.Limits) (p *received, err error) {
	file, err := os.OpenFile(filepath.Join(m.work("in"), "p.pack"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scanned, err := pack.Scan(r, file, f, l)
	if err != nil {
		return nil, ofUpstream(err)
	}
	return &received{scanned}, nil
}

// ofUpstream has an error of a pack say whose it is.
func ofUpstream(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return sandbox.Errorf(sandbox.Unavailable, "what upstream sent is refused: %s", strings.TrimPrefix(e.Msg, "the sandbox's objects: "))
	}
	return err
}

// received is a pack that came.
type received struct{ *pack.Pack }

// name is a pack's, as git calls it.
func (p *received) name() string { return "pack-" + hex.EncodeToString(p.Checksum) }

// index has git make an index of the pack, which must hold all that its objects lead to and
// the mirror lacks, and gives both to the mirror.
func (m *mirror) index(ctx context.Context, p *received) error {
	in, out := filepath.Join(m.work("in"), "p.pack"), filepath.Join(m.work("out"), "p.idx")
	err := m.git.Index(ctx, in, out, p.IndexBytes(), "--check-self-contained-and-connected")
	if g, ok := errors.AsType[*jail.Error](err); ok && (g.Code != 1 || !g.Silent) { // 1: it leads to what there was before
		return fmt.Errorf("what upstream sent is refused by git: %s", clip(g.Says, 200))
	} else if err != nil && !ok {
		return err
	}
	if err := checkIndex(p.Pack, out); err != nil {
		return err
	}
	to := filepath.Join(m.dir, "objects/pack", p.name())
	return errors.Join(os.Rename(in, to+".pack"), os.Rename(out, to+".idx"))
}

func checkIndex(p *pack.Pack, name string) error {
	idx, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = idx.Close() }() // it was only read
	return p.CheckIndex(idx)
}

// repack makes one pack of all that the mirror's refs lead to.
func (m *mirror) repack(ctx context.Context) (*received, error) {
	pr, pw := io.Pipe()
	go func() {
		err := m.git.Run(ctx, jail.Work{In: strings.NewReader(""), Out: pw}, "pack-objects", "--all", "--stdout", "-q", "--delta-base-offset", "--threads=1")
		pw.CloseWithError(err) // nil: the end of the pack
	}()
	p, err := m.keep(pr, m.known.format, pack.Limits{
		Bytes: maxMirrorPack, Objects: maxObjects, Object: maxMirrorObject, Meta: maxMeta, Unpacked: 64 * maxMirrorPack, Depth: maxDepth,
	})
	_ = pr.CloseWithError(io.ErrClosedPipe) // or git would wait for ever
	if err != nil {
		return nil, err
	}
	return p, m.index(ctx, p)
}

// lost is err, or that the connection is where it only ended.
func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, pktline.ErrBroken) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

// demux reads the data of a message that carries several bands, up to its end.
type demux struct {
	lines *pktline.Reader
	tell  func(words []byte) // what is for people; nil: nobody
	rest  []byte
	ended bool
}

// Read implements io.Reader.
func (d *demux) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.ended {
			return 0, io.EOF
		}
		kind, data, err := d.lines.Next()
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, lost(err)
		case kind == pktline.Flush:
			d.ended = true
			return 0, io.EOF
		case kind != pktline.Data || len(data) == 0:
			return 0, errors.New("upstream answers otherwise than git does")
		}
		if err := d.take(data); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// take takes in a line of a band.
func (d *demux) take(line []byte) error {
	switch text := line[1:]; line[0] {
	case pktline.BandData:
		d.rest = text
	case pktline.BandProgress:
		if d.tell != nil {
			d.tell(text)
		}
	case pktline.BandError:
		return &remoteError{words(string(text))}
	default:
		return errors.New("upstream answers otherwise than git does")
	}
	return nil
}
