package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"unicode/utf16"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

// Trailers of an archive that is sent. TrailerEntries is there only if the
// archive is complete.
const (
	TrailerEntries = "Carboy-Entries"       // how many it has
	TrailerSkipped = "Carboy-Skipped"       // a JSON list of {"name","reason"}, ASCII, the first of those left out
	TrailerCount   = "Carboy-Skipped-Count" // how many were left out
)

const (
	maxTrailer   = 3 << 10 // bytes of TrailerSkipped: clients hold all trailers to 4 KiB, net/http among them
	archiveMedia = "application/x-tar"
)

// archiveUser returns the user and the path of a request for an archive.
func (s *Service) archiveUser(r *http.Request) (account.Account, string, error) {
	q := r.URL.Query()
	known := " path user follow except "
	if r.Method == http.MethodPost {
		known = " path user mode owner keep "
	}
	for key := range q {
		if !strings.Contains(known, " "+key+" ") {
			return account.Account{}, "", faultf(connect.CodeInvalidArgument, "query parameter %.32q is not known", key)
		}
	}
	a, err := s.who(r.Header, q.Get("user"))
	if err != nil {
		return a, "", err
	}
	p, err := s.resolve(a, q.Get("path"))
	return a, p, err
}

// sendArchive answers GET /carboy/archive?path=&user=&follow=&except= with a
// tar of a file or a directory, whose names start with the path's last part.
// follow=1 archives what a link at the path leads to, under the link's name.
// except, which may be there several times, is a name that is left out
// wherever it is below, with all that it has. What else was
// left out is in the trailers. An answer that breaks off, without the end
// mark of tar and with an aborted connection, is incomplete.
func (s *Service) sendArchive(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // HEAD would read the whole tree for nothing
		w.Header().Set("Allow", "GET, POST")
		httpErrorStatus(w, http.StatusMethodNotAllowed, "use GET or POST")
		return
	}
	a, p, err := s.archiveUser(r)
	if err != nil {
		httpError(w, err)
		return
	}
	follow, err := strconv.ParseBool(orDefault(r.URL.Query().Get("follow"), "0"))
	if err != nil {
		httpError(w, faultf(connect.CodeInvalidArgument, "query parameter follow: use 0 or 1"))
		return
	}
	var res archive.Result
	begun := false
	err = s.streams.Do(r.Context(), a, func() (err error) {
		res, err = archive.Create(r.Context(), w, p, archive.CreateOptions{Follow: follow, Except: r.URL.Query()["except"], Started: func() {
			begun = true
			w.Header().Set("Content-Type", archiveMedia)
			w.Header().Set("Trailer", strings.Join([]string{TrailerEntries, TrailerSkipped, TrailerCount}, ", "))
		}})
		return err
	})
	switch {
	case err == nil:
		trailers(w.Header(), res)
	case begun:
		s.log.Warn("archive broke off", "path", p, "error", err)
		panic(http.ErrAbortHandler) // the only way left to say so
	default:
		httpError(w, archiveFault(err))
	}
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func trailers(h http.Header, res archive.Result) {
	h.Set(TrailerEntries, strconv.FormatInt(res.Entries, 10))
	h.Set(TrailerCount, strconv.FormatInt(int64(len(res.Skipped))+res.Left, 10))
	var list []string
	size := 2
	for _, skip := range res.Skipped {
		b, err := json.Marshal(archive.Skip{Name: toValid(skip.Name), Reason: toValid(skip.Reason)})
		if err != nil {
			continue
		}
		item := ascii(string(b))
		if size += len(item) + 1; size > maxTrailer {
			break
		}
		list = append(list, item)
	}
	h.Set(TrailerSkipped, "["+strings.Join(list, ",")+"]")
}

// ascii escapes what is beyond ASCII in a JSON text.
func ascii(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r > '~' }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r <= '~' {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

// takeArchive answers POST /carboy/archive?path=&user=&mode=&owner=&keep=. The
// body is a tar, which may be compressed with gzip as a Content-Encoding.
//
// With mode=into, the default, path is a directory that exists, and the
// entries go below it. With mode=as, the directory above path must exist;
// the archive has one top entry, a file or a directory, which gets path's
// last part as its name.
//
// With mode=replace the entries go into a new directory, which then takes the
// place of the directory at path, if there is one, in one step. The old one
// gets the name keep beside it, where that is given, in the place of what had
// that name; else it is removed. After an error, what was there stays.
//
// owner is who owns what is made, where the user may give it away; else that
// is the user's. A directory that is there then stays as it is.
//
// The answer counts what was made and names what was not. After an error,
// what was extracted before it stays, but for mode=replace.
func (s *Service) takeArchive(w http.ResponseWriter, r *http.Request) {
	res, err := s.extract(r)
	if err != nil {
		httpError(w, archiveFault(err))
		return
	}
	if res.Skipped == nil {
		res.Skipped = []archive.Skip{}
	}
	writeJSON(w, http.StatusOK, res)
}

func (s *Service) extract(r *http.Request) (res archive.Result, err error) {
	a, p, err := s.archiveUser(r)
	if err != nil {
		return res, err
	}
	var o archive.ExtractOptions
	mode, keep := r.URL.Query().Get("mode"), r.URL.Query().Get("keep")
	switch {
	case keep != "" && mode != "replace":
		return res, faultf(connect.CodeInvalidArgument, "query parameter keep: only with mode=replace")
	case mode == "replace" && p != "/":
	case mode == "" || mode == "into":
	case mode == "as" && p != "/":
		p, o.As = path.Dir(p), path.Base(p)
	default:
		return res, faultf(connect.CodeInvalidArgument, "mode %.16q of path '%s': use into, as or replace", mode, p)
	}
	if name := r.URL.Query().Get("owner"); name != "" {
		to, err := s.who(http.Header{}, name)
		if err != nil {
			return res, err
		}
		o.Own = &archive.Owner{UID: to.UID, GID: to.GID}
	}
	var body io.Reader
	if body, err = decoded(r); err != nil {
		return res, err
	}
	err = s.streams.Do(r.Context(), a, func() (err error) {
		if mode == "replace" {
			res, err = archive.Replace(r.Context(), body, p, keep, o)
			return err
		}
		res, err = archive.Extract(r.Context(), body, p, o)
		return err
	})
	if mode == "replace" {
		return res, err
	}
	if err != nil && res.Entries > 0 {
		err = fmt.Errorf("%w (%d entries were extracted before)", err, res.Entries)
	}
	return res, err
}

// archiveFault says what kind of error one of package archive is.
func archiveFault(err error) error {
	if errors.Is(err, archive.ErrUnsafe) || errors.Is(err, archive.ErrFormat) {
		return &fault{connect.CodeInvalidArgument, err}
	}
	return err
}
