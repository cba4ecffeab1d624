package tool

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

const (
	maxReport = 4 << 20 // bytes of what a guest says it left out
	// maxArchive bounds an archive: contents, and a few KiB about each entry.
	maxArchive = tools.MaxAttachmentsTotal + maxReport + 2<<20
)

// Collect takes what an agent left in the outbox of a query for its user, and
// empties the outbox. What is no regular file, too much or too large is left
// out, named in the answer, and goes with the rest. An outbox that holds more
// entries than it may, or that a link leads to, is an error, and stays as it
// is.
func (t *Tools) Collect(ctx context.Context, queryID string) (tools.Collected, error) {
	dir, err := toolspec.Outbox(t.opts.Root, queryID)
	if err != nil {
		return tools.Collected{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	resp, err := t.post(ctx, "collect", t.opts.User, guest.CollectRequest{Path: dir})
	if err != nil {
		return tools.Collected{}, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") != "application/x-tar" {
		return tools.Collected{}, uncollected(ctx, dir, resp.Body)
	}
	res, err := unpack(io.LimitReader(resp.Body, maxArchive))
	if err != nil {
		if ctx.Err() != nil {
			return tools.Collected{}, late(ctx)
		}
		return tools.Collected{}, err
	}
	notices, err := t.clear(ctx, dir, true)
	if err != nil { // what was collected counts
		notices = append(notices, "the outbox could not be emptied, and its files may come again: "+err.Error())
	}
	res.Notices = notices
	return res, nil
}

// uncollected is the error for an outbox that is not taken.
func uncollected(ctx context.Context, dir string, in io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(in, maxAnswer))
	if err != nil && ctx.Err() != nil {
		return late(ctx)
	}
	var f tools.Failure
	if err != nil || json.Unmarshal(b, &f) != nil || f.OK || checkFailure(&f) != nil {
		return broken("collect: neither an archive nor a refusal")
	}
	kind := sandbox.Invalid
	switch f.Code {
	case tools.ToolDenied:
		kind = sandbox.Denied
	case tools.ToolTooLarge:
		kind = sandbox.Exhausted
	case tools.ToolOutOfTime:
		kind = sandbox.Unavailable
	}
	return sandbox.Errorf(kind, "the outbox %s is not taken: %s", dir, f.Error).
		WithHint("have the agent put at most %d files there, and no links", tools.MaxAttachments)
}

// unpack reads an archive of a guest's, which may be anything.
func unpack(in io.Reader) (tools.Collected, error) {
	res := tools.Collected{Attachments: []tools.Outbound{}}
	tr := tar.NewReader(in)
	taken, total := names{}, int64(0)
	for {
		h, err := tr.Next()
		if err != nil {
			return res, broken("an archive without its report: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			return res, broken("an archive with what is no file")
		}
		if h.Name == guest.CollectReport {
			return res, report(&res, tr, h.Size)
		}
		if total += h.Size; h.Size < 0 || h.Size > tools.MaxAttachmentBytes || total > tools.MaxAttachmentsTotal || len(res.Attachments) == tools.MaxAttachments {
			return res, broken("an archive beyond its limits")
		}
		if !relative(h.Name) {
			return res, broken("an archive with a name that leads elsewhere")
		}
		data, err := io.ReadAll(io.LimitReader(tr, h.Size))
		if err != nil || int64(len(data)) != h.Size {
			return res, broken("an archive that breaks off: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		res.Attachments = append(res.Attachments, outbound(taken, h.Name, data))
	}
}

// outbound makes a file one to hand to a platform.
func outbound(taken names, rel string, data []byte) tools.Outbound {
	rel = strings.ToValidUTF8(rel, "\ufffd")
	o := tools.Outbound{Name: taken.take(shownName(path.Base(rel))), Path: clean(rel), Size: int64(len(data))}
	var mediaType string
	o.Type, mediaType = classify(o.Name)
	o.Base64 = base64.StdEncoding.EncodeToString(data)
	if mediaType != "" {
		o.Base64 = "data:" + mediaType + ";base64," + o.Base64
	}
	return o
}

// shownName makes a file's name one that a platform can show.
func shownName(name string) string {
	name = strings.TrimSpace(strings.ReplaceAll(clean(name), `\`, "_"))
	if len(name) > maxName {
		return CleanName(name, "file")
	}
	return name
}

// relative reports whether a name is one below a directory.
func relative(name string) bool {
	if name == "" || name[0] == '/' || len(name) > 4096 || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// report reads what a guest says of an archive, and that nothing follows.
func report(res *tools.Collected, tr *tar.Reader, size int64) error {
	b, err := io.ReadAll(io.LimitReader(tr, maxReport))
	var said guest.CollectAnswer
	if err != nil || size > maxReport || json.Unmarshal(b, &said) != nil {
		return broken("an archive whose report is none: %w", err)
	}
	if _, err := tr.Next(); err != io.EOF {
		return broken("an archive that goes on after its report: %w", err)
	}
	if said.Files != len(res.Attachments) || len(said.Skipped) > tools.OutboxEntries {
		return broken("an archive of %d files, said to be %d", len(res.Attachments), said.Files)
	}
	for _, s := range said.Skipped {
		res.Skipped = append(res.Skipped, tools.SkippedEntry{Name: clean(s.Name), Reason: clean(s.Reason)})
	}
	return nil
}
