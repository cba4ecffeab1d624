package files

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

// packagesDir is where the host puts packages for agents. It is a directory
// of the sandbox's own, and root's.
const packagesDir = "/workspace/.skills"

// packages answers /carboy/packages, by which the host alone, and none of its
// users, has packages here: it acts as root also where users may not, and
// only in packagesDir.
//
//   - GET lists the names, as {"names":[]}.
//   - GET ?name=&except= answers with a tar of a package, as /carboy/archive
//     does.
//   - POST ?name=&owner=&keep= replaces a package by a tar, as mode=replace of
//     /carboy/archive does.
//   - DELETE ?name= removes a package; one that is not there is no error.
func (s *Service) packages(w http.ResponseWriter, r *http.Request) {
	var out any
	root, err := s.host(account.Root)
	if err == nil {
		err = s.streams.Do(r.Context(), root, func() (err error) {
			out, err = s.package1(w, r)
			return err
		})
	}
	switch {
	case errors.Is(err, errBegun):
		panic(http.ErrAbortHandler)
	case err != nil:
		httpError(w, archiveFault(err))
	case out != nil:
		writeJSON(w, http.StatusOK, out)
	}
}

// errBegun is of an answer that broke off.
var errBegun = errors.New("the answer has begun")

// host finds a user for the host.
func (s *Service) host(name string) (account.Account, error) {
	if s.opts.Host == nil {
		return account.Account{}, faultf(connect.CodeNotFound, "there are no packages here")
	}
	a, err := s.opts.Host(name)
	if err != nil {
		return a, &fault{connect.CodeInvalidArgument, err}
	}
	return a, nil
}

// package1 does what one request asks for, on a worker.
func (s *Service) package1(w http.ResponseWriter, r *http.Request) (any, error) {
	dir, err := openPackages()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	q := r.URL.Query()
	name := q.Get("name")
	if name == "" && r.Method == http.MethodGet {
		names, err := dir.Readdirnames(-1)
		if names == nil {
			names = []string{}
		}
		return map[string][]string{"names": names}, err
	}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return nil, faultf(connect.CodeInvalidArgument, "name %.64q is none of a package", name)
	}
	// What the directory is was looked at; its name may lead elsewhere by now.
	at := int(dir.Fd())
	switch r.Method {
	case http.MethodGet:
		begun := false
		_, err := archive.CreateIn(r.Context(), w, at, name, archive.CreateOptions{Except: q["except"], Started: func() {
			begun = true
			w.Header().Set("Content-Type", archiveMedia)
		}})
		if err != nil && begun {
			s.log.Warn("archive broke off", "package", name, "error", err)
			return nil, errBegun
		}
		return nil, err
	case http.MethodPost:
		owner, err := s.host(q.Get("owner"))
		if err != nil {
			return nil, err
		}
		var body io.Reader
		if body, err = decoded(r); err != nil {
			return nil, err
		}
		return archive.ReplaceIn(r.Context(), body, at, name, q.Get("keep"), archive.ExtractOptions{Own: &archive.Owner{UID: owner.UID, GID: owner.GID}})
	}
	return struct{}{}, beneath.Remove(r.Context(), at, name)
}

// openPackages opens the directory of packages, if nobody but root can put
// anything there.
func openPackages() (*os.File, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	defer unix.Close(root)
	fd, err := beneath.OpenNoLinks(root, packagesDir[1:], openDir)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: packagesDir, Err: err}
	}
	f := os.NewFile(uintptr(fd), packagesDir)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != 0 || st.Mode&0o022 != 0 {
		f.Close()
		return nil, faultf(connect.CodeFailedPrecondition, "%s is not root's alone", packagesDir)
	}
	return f, nil
}
