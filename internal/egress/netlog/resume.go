package netlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// tail is how much of a file's end is read to find its last record.
const tail = 4 * maxLine

// resume finds the active file, its end and the last number.
func (w *Writer) resume() error {
	var sizes [2]int64
	var turns [2]uint64
	for i, f := range w.files {
		size, seq, turn, err := mend(f)
		if err != nil {
			return err
		}
		sizes[i], turns[i] = size, turn
		w.seq = max(w.seq, seq)
	}
	if turns[1] > turns[0] {
		w.active = 1
	}
	w.size, w.turn = sizes[w.active], turns[w.active]
	if w.turn > 0 {
		return nil
	}
	w.active = 1 // so that the first one is next
	return w.takeTurn()
}

// mend cuts off what is no whole line at the end of a file, and returns its
// size, the number of its last record and whose turn it was. A file of another
// kind is emptied.
func mend(f File) (size int64, seq, turn uint64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("record: %w", err)
	}
	head, err := readAt(f, 0, maxHeader)
	if err != nil {
		return 0, 0, 0, err
	}
	turn = parseHeader(head)
	from := max(info.Size()-tail, 0)
	end, err := readAt(f, from, tail)
	if err != nil {
		return 0, 0, 0, err
	}
	whole := bytes.LastIndexByte(end, '\n') + 1
	size = from + int64(whole)
	if turn == 0 || whole == 0 {
		size, turn = 0, 0
	}
	if size != info.Size() {
		if err := f.Truncate(size); err != nil {
			return 0, 0, 0, fmt.Errorf("record: %w", err)
		}
	}
	if size == 0 {
		return 0, 0, 0, nil
	}
	for line := range bytes.SplitSeq(end[:whole], []byte("\n")) {
		if r, ok := decode(line); ok {
			seq = max(seq, r.Seq)
		}
	}
	return size, seq, turn, nil
}

// readAt reads up to n bytes, fewer where the file ends.
func readAt(f io.ReaderAt, at int64, n int) ([]byte, error) {
	p := make([]byte, n)
	got, err := f.ReadAt(p, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("record: %w", err)
	}
	return p[:got], nil
}
