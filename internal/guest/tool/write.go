package tool

import (
	"context"
	"encoding/base64"
	"errors"
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"golang.org/x/sys/unix"
)

// write makes a file what it is to be.
func (c *call) write(q *tools.WriteRequest) (res tools.WriteResult, err error) {
	rel, abs, err := c.file(q.Path)
	if err != nil {
		return res, err
	}
	data, err := content(q)
	if err != nil {
		return res, err
	}
	if q.Encoding == tools.EncodingBase64 && inSkills(c.root, abs) {
		return res, failf(tools.ToolInvalid, "base64 writes to skill packages are not supported; write text")
	}
	t := &target{rel: rel, abs: abs, flags: unix.O_WRONLY, make: true}
	switch q.Mode {
	case "", tools.WriteOverwrite:
	case tools.WriteAppend:
		t.flags |= unix.O_APPEND
	default:
		return res, failf(tools.ToolInvalid, "mode %.16q: use overwrite or append", q.Mode)
	}
	err = c.change(t, func() error {
		if t.flags&unix.O_APPEND != 0 {
			return t.add(data)
		}
		return t.put(data)
	})
	if err != nil {
		clean := *c
		clean.ctx = context.WithoutCancel(c.ctx) // the call's end may be why
		_ = clean.do(func(root int) error { t.giveUp(root); return nil })
		return res, err
	}
	res = tools.WriteResult{Path: abs, SizeBytes: int64(len(data)), Created: t.created}
	if q.Mode == tools.WriteAppend {
		res.SizeBytes += t.size
	}
	res.OK = true
	return res, nil
}

// content returns the bytes that a write writes.
func content(q *tools.WriteRequest) ([]byte, error) {
	var data []byte
	switch q.Encoding {
	case "", tools.EncodingText:
		data = []byte(q.Content)
	case tools.EncodingBase64:
		var err error
		if data, err = base64.StdEncoding.Strict().DecodeString(q.Content); err != nil {
			return nil, failf(tools.ToolInvalid, "invalid base64 content: %v", err)
		}
		if strings.ContainsAny(q.Content, "\r\n") {
			return nil, failf(tools.ToolInvalid, "invalid base64 content: it has line ends")
		}
	default:
		return nil, failf(tools.ToolInvalid, "encoding %.16q: use text or base64", q.Encoding)
	}
	if len(data) > tools.MaxWriteBytes {
		return nil, failf(tools.ToolTooLarge, "the content is longer than %d bytes; write it in parts, with the mode append", tools.MaxWriteBytes)
	}
	return data, nil
}

// inSkills reports whether a path is in a package of skills, which are text.
func inSkills(root, abs string) bool {
	skills := root + strings.TrimPrefix(tools.SkillsPath, tools.WorkspacePath) + "/"
	return strings.HasPrefix(abs, skills)
}

// clear removes what is at a path.
func (c *call) clear(q *guest.ClearRequest) (res tools.Failure, err error) {
	rel, abs, err := c.file(q.Path)
	if err != nil {
		return res, err
	}
	err = c.do(func(root int) error {
		dir, err := beneath.OpenNoLinks(root, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return explain(abs, err)
		}
		defer unix.Close(dir)
		name := path.Base(rel)
		again := q.Keep && kindOf(dir, name) == unix.DT_DIR
		if err := beneath.Remove(c.ctx, dir, name); err != nil {
			return explain(abs, err)
		}
		if !again {
			return nil
		}
		if err := unix.Mkdirat(dir, name, dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return explain(abs, err)
		}
		return nil
	})
	res.OK = err == nil
	return res, err
}
