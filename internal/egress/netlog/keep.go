package netlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// keepShare is the part of a file, one by this many, that refusals from before
// may hold.
const keepShare = 8

// keep returns the lines of the first refusal of each kind in a file that is
// about to be emptied, at most limit bytes of them. So whatever a sandbox does
// afterwards, and however much: that it tried once stays on the record.
func keep(f io.ReaderAt, limit int64) ([]byte, error) {
	var (
		out  []byte
		seen = make(map[key]bool)
		in   = bufio.NewReaderSize(io.NewSectionReader(f, 0, math.MaxInt64), maxLine)
		skip bool // the rest of a line that is too long
	)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
			continue
		case err != nil:
			return nil, fmt.Errorf("record: %w", err)
		case skip:
			skip = false
			continue
		case !bytes.Contains(line, []byte(`"verdict":"deny"`)):
			continue // most lines, and cheaper than to decode them
		}
		r, ok := decode(line)
		if !ok || r.Verdict != Deny {
			continue
		}
		// The path is left out: who makes up paths would fill the space.
		k := key{code: r.Code, rule: r.Rule, protocol: r.Protocol, host: r.Host, address: r.Address}
		if seen[k] || int64(len(out)+len(line)) > limit {
			continue
		}
		seen[k] = true
		out = append(out, line...)
	}
}
