package workspace

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"io"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// aside is something of a workspace that is not in the stream, for it is left out or not selected, and that
// began as something of the base or may have been taken by an apply.
type aside struct {
	origin, self Origin
	path         string
	shown        bool // a directory that is Shown; else no directory
}

// maxAside bounds what a stream tells of what is not in it, in bytes.
const maxAside = 512 << 20

// appendAside adds a change to what readAside reads.
func appendAside(b []byte, c *Change) []byte {
	path := c.Path
	if c.Kind == Dir {
		path += "/"
	}
	return appendString(append(append(b, c.Origin[:]...), c.Self[:]...), path)
}

// readAside reads what a stream tells of what is not in it.
func readAside(r io.Reader, h *tar.Header) ([]aside, error) {
	if h.Size > maxAside {
		return nil, sandbox.Errorf(sandbox.Exhausted, "change stream: %d bytes of what is left out, at most %d", h.Size, maxAside)
	}
	if err := onlyRecords(h); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, broken(err)
	}
	list := []aside{}
	for b := bytes.NewReader(raw); b.Len() > 0; {
		var one aside
		_, err := io.ReadFull(b, one.origin[:])
		if err == nil {
			_, err = io.ReadFull(b, one.self[:])
		}
		n := uint64(0)
		if err == nil {
			n, err = binary.ReadUvarint(b)
		}
		if err != nil || n > maxPath+1 || n > uint64(b.Len()) {
			return nil, badStream("what is left out is cut short")
		}
		path := make([]byte, n)
		_, _ = b.Read(path) // there is as much
		one.path, one.shown = strings.CutSuffix(string(path), "/")
		if err := checkPath(one.path); err != nil {
			return nil, badStream("%v", err)
		}
		list = append(list, one)
	}
	return list, nil
}
