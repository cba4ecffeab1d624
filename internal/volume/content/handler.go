// Package content gives access to what a volume holds, over HTTP as E2B's
// content API has it: list, look, read, write, make, change and remove.
//
// Guests write there, so no daemon does: each volume that is looked into has a
// process of its own, of this binary, that sees the volume as its whole file
// system, has no network, may do nothing but work on files, and ends when
// nobody has asked for a while. Paths are resolved below the volume's root by
// the kernel; a link that leads out of it is refused.
//
// A file appears under its name when it is whole, and never before.
package content

import (
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// maxBody bounds a request that is no file, in bytes.
const maxBody = 4 << 10

// handler answers requests below a volume's root: GET, PATCH and DELETE /path,
// GET and POST /dir, GET and PUT /file.
type handler struct {
	root  root
	limit int64 // bytes of a file; 0: as large as the disk allows
}

// operation is one of them. rel is the path that it is about.
type operation struct {
	may []string // parameters besides path
	do  func(h handler, w http.ResponseWriter, r *http.Request, rel string, q url.Values) error
}

var operations = map[string]operation{
	"GET /path":    {nil, handler.getPath},
	"PATCH /path":  {nil, handler.patchPath},
	"DELETE /path": {nil, handler.deletePath},
	"GET /dir":     {[]string{"depth"}, handler.getDir},
	"POST /dir":    {[]string{"uid", "gid", "mode", "force"}, handler.postDir},
	"GET /file":    {nil, handler.getFile},
	"HEAD /file":   {nil, handler.getFile},
	"PUT /file":    {[]string{"uid", "gid", "mode", "force"}, handler.putFile},
}

// Known reports whether there is such an operation.
func Known(method, path string) bool {
	_, ok := operations[method+" "+path]
	return ok
}

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, ok := operations[r.Method+" "+r.URL.Path]
	if !ok {
		Fail(w, notFound, "no such operation")
		return
	}
	rel, q, err := parameters(r.URL.RawQuery, op.may)
	if err == nil {
		err = op.do(h, w, r, rel, q)
	}
	if err != nil {
		f := explain(err, rel)
		Fail(w, f.status, f.text)
	}
}

// parameters reads a query: path, and what else the operation knows, each once.
func parameters(raw string, may []string) (rel string, q url.Values, err error) {
	if q, err = url.ParseQuery(raw); err != nil {
		return "", nil, faultf(badRequest, "the query can't be read")
	}
	for name, values := range q {
		if name != "path" && !slices.Contains(may, name) {
			return "", nil, faultf(badRequest, "%.40q: no such parameter", name)
		}
		if len(values) != 1 {
			return "", nil, faultf(badRequest, "%s: it is there twice", name)
		}
	}
	rel, err = cleanPath(q.Get("path"))
	return rel, q, err
}

// number reads a parameter from 0 to most; without it, it is def.
func number(q url.Values, name string, def, most uint32) (uint32, error) {
	s := q.Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || uint32(n) > most {
		return 0, faultf(badRequest, "%s: not a number from 0 to %d", name, most)
	}
	return uint32(n), nil
}

// making reads what a new file or directory is to have.
func making(q url.Values, mode uint32) (a attributes, force bool, err error) {
	a = defaults(mode)
	for _, p := range []struct {
		name string
		most uint32
		to   *uint32
	}{{"uid", tree.IDs - 1, &a.uid}, {"gid", tree.IDs - 1, &a.gid}, {"mode", maxMode, &a.mode}} {
		if *p.to, err = number(q, p.name, *p.to, p.most); err != nil {
			return a, false, err
		}
	}
	switch q.Get("force") {
	case "", "false":
	case "true":
		force = true
	default:
		return a, false, faultf(badRequest, "force: neither true nor false")
	}
	return a, force, nil
}

func (h handler) getPath(w http.ResponseWriter, _ *http.Request, rel string, _ url.Values) error {
	e, err := h.root.look(rel)
	if err == nil {
		answer(w, http.StatusOK, e)
	}
	return err
}

func (h handler) patchPath(w http.ResponseWriter, r *http.Request, rel string, _ url.Values) error {
	var body struct {
		UID  *uint32 `json:"uid"`
		GID  *uint32 `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = strict.Unmarshal(text, &body)
	}
	if err != nil {
		return faultf(badRequest, "the body is not an object of uid, gid and mode: %v", err)
	}
	for _, id := range []*uint32{body.UID, body.GID} {
		if id != nil && *id >= tree.IDs {
			return faultf(badRequest, "uid and gid: from 0 to %d", tree.IDs-1)
		}
	}
	if body.Mode != nil && *body.Mode > maxMode {
		return faultf(badRequest, "mode: from 0 to %#o", maxMode)
	}
	e, err := h.root.change(rel, body.UID, body.GID, body.Mode)
	if err == nil {
		answer(w, http.StatusOK, e)
	}
	return err
}

func (h handler) deletePath(w http.ResponseWriter, r *http.Request, rel string, _ url.Values) error {
	if err := h.root.remove(r.Context(), rel); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h handler) getDir(w http.ResponseWriter, r *http.Request, rel string, q url.Values) error {
	depth, err := number(q, "depth", 1, maxDepth)
	if err != nil {
		return err
	}
	entries, err := h.root.list(r.Context(), rel, int(max(depth, 1)))
	if err == nil {
		answer(w, http.StatusOK, entries)
	}
	return err
}

func (h handler) postDir(w http.ResponseWriter, _ *http.Request, rel string, q url.Values) error {
	a, force, err := making(q, dirMode)
	if err != nil {
		return err
	}
	e, err := h.root.makeDir(rel, a, force)
	if err == nil {
		answer(w, http.StatusCreated, e)
	}
	return err
}

// getFile answers with a file or, where the client asks for it, a part of one.
func (h handler) getFile(w http.ResponseWriter, r *http.Request, rel string, _ url.Values) error {
	f, st, err := h.root.file(rel)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", timeOf(st.Mtim).Truncate(time.Second), f)
	return nil
}

func (h handler) putFile(w http.ResponseWriter, r *http.Request, rel string, q url.Values) error {
	if t := r.Header.Get("Content-Type"); t != "" {
		if m, _, err := mime.ParseMediaType(t); err != nil || m != "application/octet-stream" {
			return faultf(badRequest, "content type %.80q: send the file itself, as application/octet-stream", t)
		}
	}
	a, force, err := making(q, fileMode)
	if err != nil {
		return err
	}
	e, err := h.root.write(rel, r.Body, a, force, h.limit)
	if err == nil {
		answer(w, http.StatusCreated, e)
	}
	return err
}
