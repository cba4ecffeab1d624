package server

import (
	"io"
	"net/http"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/disk/sparse"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// maxDiskPath bounds a path of a disk, in bytes, as package disk bounds those that it lists.
const maxDiskPath = 64 << 10

// defaultMaxBytes is how much of a file is read where nobody says.
const defaultMaxBytes = 65536

// diskPath reads the path of a disk among parameters.
func diskPath(q map[string][]string, or string) (string, error) {
	switch p := q["path"]; {
	case len(p) == 0 && or != "":
		return or, nil
	case len(p) != 1 || len(p[0]) > maxDiskPath:
		return "", sandbox.Errorf(sandbox.Invalid, "parameter path: one, of at most %d bytes", maxDiskPath)
	default:
		return p[0], nil
	}
}

// listDisk lists what lies at a path of a stopped sandbox's disk.
func (a *sandboxAPI) listDisk(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "path", "recursive")
	var path string
	var recursive bool
	if err == nil {
		path, err = diskPath(q, "/")
	}
	if err == nil {
		recursive, err = truth("recursive", q["recursive"])
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	answerWith(w, "application/json", func(out io.Writer) error {
		return a.m.ListDisk(r.Context(), auth.Of(r).Caller, r.PathValue("id"), path, recursive, out)
	})
}

// readDisk reads the beginning of a file of a stopped sandbox's disk.
func (a *sandboxAPI) readDisk(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "path", "max_bytes")
	var path string
	most := int64(defaultMaxBytes)
	if err == nil {
		path, err = diskPath(q, "")
	}
	if n := q["max_bytes"]; err == nil && len(n) > 0 {
		if most, err = strconv.ParseInt(n[0], 10, 64); err != nil || len(n) > 1 {
			err = sandbox.Errorf(sandbox.Invalid, "parameter max_bytes: one number")
		}
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	answerWith(w, "application/json", func(out io.Writer) error {
		return a.m.ReadDisk(r.Context(), auth.Of(r).Caller, r.PathValue("id"), path, most, out)
	})
}

// exportDisk writes the image of a stopped sandbox's disk.
func (a *sandboxAPI) exportDisk(w http.ResponseWriter, r *http.Request) {
	answerWith(w, sparse.ContentType, func(out io.Writer) error {
		return a.m.ExportDisk(r.Context(), auth.Of(r).Caller, r.PathValue("id"), out)
	})
}

// answerWith answers with what f writes. What fails after the first byte breaks the connection,
// so that half an answer is not taken for a whole one.
func answerWith(w http.ResponseWriter, contentType string, f func(out io.Writer) error) {
	out := newStream(w, contentType)
	err := f(out)
	switch {
	case err == nil:
		out.begin()
	case !out.begun:
		wire.Error(w, err)
	default:
		wire.Failed(w, err)
		panic(http.ErrAbortHandler)
	}
}

// scrubDisk erases runtime directories of a stopped sandbox's disk, and tells how far it is.
func (a *sandboxAPI) scrubDisk(w http.ResponseWriter, r *http.Request) {
	same := func(a, b sandbox.DiskStep) bool { return a.Step == b.Step }
	out := newNewsStream(w, same, func(s sandbox.DiskStep) any { return api.DiskNews{Step: s.Step, Done: s.Done, Total: s.Total} })
	err := a.m.ScrubDisk(r.Context(), auth.Of(r).Caller, r.PathValue("id"), out.report)
	begun := out.stop()
	last := api.DiskNews{Scrubbed: true}
	if err != nil {
		if !begun {
			wire.Error(w, err)
			return
		}
		wire.Failed(w, err)
		e := wire.Describe(err)
		last = api.DiskNews{Error: &e}
	}
	out.line(last)
}
