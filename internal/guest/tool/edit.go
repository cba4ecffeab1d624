package tool

import (
	"bytes"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
)

// edit replaces one text in a file. The rest of the file stays as it is, byte
// for byte, text or not.
func (c *call) edit(q *tools.EditRequest) (res tools.EditResult, err error) {
	rel, abs, err := c.file(q.Path)
	if err != nil {
		return res, err
	}
	if q.OldString == "" {
		return res, failf(tools.ToolInvalid, "old_string is empty; to make a file or to add to one, use write")
	}
	t := &target{rel: rel, abs: abs, flags: unix.O_RDWR}
	err = c.change(t, func() error {
		old, err := all(t.f, tools.MaxEditBytes)
		if err != nil {
			return err
		}
		if len(old) > tools.MaxEditBytes {
			return failf(tools.ToolTooLarge, "the file exceeds the %d-byte edit limit: %s", tools.MaxEditBytes, short(abs))
		}
		now, at, err := replaced(old, q)
		if err != nil {
			return err
		}
		res.Line = int64(bytes.Count(old[:at], []byte{'\n'})) + 1
		t.size = int64(len(old))
		if err := t.put(now); err != nil {
			return t.restore(old, err)
		}
		return nil
	})
	res.Path, res.OK = abs, err == nil
	return res, err
}

// restore puts back what the file held after a write that failed.
func (t *target) restore(old []byte, err error) error {
	fd := int(t.f.Fd())
	if _, werr := writeAt(fd, old, 0); werr != nil {
		return err
	}
	if terr := unix.Ftruncate(fd, int64(len(old))); terr != nil {
		return err
	}
	f, ok := errors.AsType[*failure](explain(t.abs, err))
	if !ok || f.code != tools.ToolIncomplete {
		return err
	}
	return failf(tools.ToolNoSpace, "the file is as it was before, since the new content could not be written: %s", short(t.abs))
}

// replaced returns old with the one place replaced that q means, and where
// that is.
func replaced(old []byte, q *tools.EditRequest) (now []byte, at int, err error) {
	from, to := []byte(q.OldString), []byte(q.NewString)
	at = bytes.Index(old, from)
	if at < 0 {
		return nil, 0, failf(tools.ToolNoMatch, "old_string not found in the file; read it again and give the text exactly, spaces too")
	}
	const most = 1000
	n := 1
	for i := at + 1; n < most; n++ { // those that overlap count: which one is meant?
		j := bytes.Index(old[i:], from)
		if j < 0 {
			break
		}
		i += j + 1
	}
	if n > 1 {
		return nil, 0, failf(tools.ToolAmbiguous, "old_string matches %d places; give more of the text around the one that is meant", n)
	}
	if len(old)-len(from)+len(to) > tools.MaxEditBytes {
		return nil, 0, failf(tools.ToolTooLarge, "the edited file would exceed the %d-byte edit limit", tools.MaxEditBytes)
	}
	now = append(now, old[:at]...)
	now = append(now, to...)
	return append(now, old[at+len(from):]...), at, nil
}
