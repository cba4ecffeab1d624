package tool

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/toolspec"
)

const (
	// transferTimeout is how long attachments may take on their way.
	transferTimeout = 5 * time.Minute

	rootUser = "root" // of each sandbox
)

// Deliver puts a query's attachments into its inbox, in place of any that were
// there. Those that are too many or too large are left out, and named in the
// answer. After an error none is there.
func (t *Tools) Deliver(ctx context.Context, in tools.AttachmentsIn) (tools.AttachmentsDelivered, error) {
	dir, err := toolspec.Inbox(t.opts.Root, in.QueryID)
	if err != nil {
		return tools.AttachmentsDelivered{}, err
	}
	for i, f := range in.Files {
		if _, ok := fallbacks[f.Type]; !ok && f.Type != "" {
			return tools.AttachmentsDelivered{}, sandbox.Errorf(sandbox.Invalid, "files[%d].type %.20q: use Image, Voice or File", i, f.Type)
		}
	}
	res, data := choose(dir, in.Files)
	if len(data) == 0 {
		return res, nil
	}
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	if res.Notices, err = t.clear(ctx, dir, false); err != nil {
		return tools.AttachmentsDelivered{}, err
	}
	if err := t.send(ctx, res.Attachments, data); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_, _ = t.clear(clean, dir, false)
		return tools.AttachmentsDelivered{}, err
	}
	return res, nil
}

// choose names the files that are to be delivered.
func choose(dir string, files []tools.Attachment) (res tools.AttachmentsDelivered, data [][]byte) {
	res.Attachments = []tools.Delivered{}
	taken, total := names{}, int64(0)
	for _, f := range files {
		kind := f.Type
		if kind == "" {
			kind, _ = classify(f.Name)
		}
		name := CleanName(f.Name, fmt.Sprintf(fallbacks[kind], len(data)+1))
		size := int64(len(f.Data))
		why := ""
		switch {
		case size > tools.MaxAttachmentBytes:
			why = "it is larger than 10 MiB"
		case len(data) == tools.MaxAttachments:
			why = "there are too many files"
		case total+size > tools.MaxAttachmentsTotal:
			why = "the files together are larger than 50 MiB"
		}
		if why != "" {
			res.Skipped = append(res.Skipped, tools.SkippedEntry{Name: name, Reason: why})
			continue
		}
		name = taken.take(name)
		total += size
		data = append(data, f.Data)
		res.Attachments = append(res.Attachments, tools.Delivered{Path: path.Join(dir, name), Name: name, Type: kind, Size: size})
	}
	return res, data
}

// send has the agent extract the files.
func (t *Tools) send(ctx context.Context, to []tools.Delivered, data [][]byte) error {
	r, w := io.Pipe()
	var packing sync.WaitGroup
	packing.Go(func() { w.CloseWithError(pack(w, t.opts.Root, to, data)) })
	defer packing.Wait()
	defer r.Close() // ends who writes
	q := url.Values{"path": {t.opts.Root}}
	if t.opts.User != "" {
		q.Set("user", t.opts.User)
	}
	resp, err := t.do(ctx, "/carboy/archive?"+q.Encode(), "application/x-tar", r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := body(ctx, resp, maxAnswer)
	if err != nil {
		return err
	}
	var res struct {
		Entries int `json:"entries"`
	}
	if err := json.Unmarshal(b, &res); err != nil || res.Entries != len(to) {
		return broken("%d of %d files were extracted: %w", res.Entries, len(to), err)
	}
	return nil
}

// pack writes the files as a tar, by their names below the root.
func pack(w io.Writer, root string, to []tools.Delivered, data [][]byte) error {
	tw := tar.NewWriter(w)
	now := time.Now()
	for i, f := range to {
		name := strings.TrimPrefix(strings.TrimPrefix(f.Path, root), "/")
		h := &tar.Header{Typeflag: tar.TypeReg, Format: tar.FormatPAX, Name: name, Size: f.Size, Mode: 0o644, ModTime: now}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(data[i]); err != nil {
			return err
		}
	}
	return tw.Close()
}

// Purge removes the inboxes and the outboxes of all queries, for nobody to
// find what an earlier one left.
func (t *Tools) Purge(ctx context.Context) (notices []string, err error) {
	for _, dir := range []string{tools.InboxDir, tools.OutboxDir} {
		n, err := t.clear(ctx, path.Join(t.opts.Root, dir), false)
		if err != nil {
			return nil, err
		}
		notices = append(notices, n...)
	}
	return notices, nil
}

// clear removes a directory of attachments. What the session's user may not
// remove, its root does, where the sandbox has one: it is all below the
// workspace, on a way that no link is part of, and no link in it is followed.
func (t *Tools) clear(ctx context.Context, dir string, keep bool) (notices []string, err error) {
	q := guest.ClearRequest{Path: dir, Keep: keep}
	res, err := t.clearAs(ctx, t.opts.User, q)
	if err != nil || res.OK {
		return nil, err
	}
	if res.Code == tools.ToolDenied {
		q.Keep = false // it would be root's
		again, err := t.clearAs(ctx, rootUser, q)
		switch {
		case err == nil && again.OK:
			return []string{"what another user of the sandbox had left in " + dir + " was removed as root"}, nil
		case err != nil && sandbox.KindOf(err) != sandbox.Denied:
			return nil, err
		}
	}
	kind := sandbox.Denied
	if res.Code != tools.ToolDenied {
		kind = sandbox.Invalid
	}
	return nil, sandbox.Errorf(kind, "%s can't be emptied: %s", dir, res.Error).WithHint("remove it by a command in the session")
}

func (t *Tools) clearAs(ctx context.Context, user string, q guest.ClearRequest) (res tools.Failure, err error) {
	b, err := t.answer(ctx, "clear", user, q)
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(b, &res); err != nil {
		return res, broken("clear: %w", err)
	}
	return res, checkFailure(&res)
}
