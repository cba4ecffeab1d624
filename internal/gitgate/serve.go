package gitgate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	maxAsked   = 64 << 20 // bytes by which a client says what it wants
	uploadTime = time.Hour
)

// stallTime is for how long a client may send nothing that is waited for, or take nothing.
var stallTime = 2 * time.Minute

var protocolWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^version=[12]$`) })

// ServeHTTP implements http.Handler: /NAME.git/info/refs?service=… and the two services.
func (g *Gate) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	leave, ok := g.enterGate()
	if !ok {
		refuse(w, http.StatusServiceUnavailable, errClosed.Error())
		return
	}
	defer leave()
	r, rest, err := g.find(req.URL.Path)
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	service := req.URL.Query().Get("service")
	switch {
	case rest == "info/refs" && req.Method == http.MethodGet && (service == uploadPack || service == receivePack):
		g.tellRefs(w, req, r, service)
	case (rest == uploadPack || rest == receivePack) && req.Method == http.MethodPost:
		if req.Header.Get("Content-Type") != "application/x-"+rest+"-request" {
			refuse(w, http.StatusUnsupportedMediaType, "this is no request of git's")
			return
		}
		if rest == uploadPack {
			g.upload(w, req, r)
		} else {
			g.receive(w, req, r)
		}
	case rest == "info/refs" || rest == "HEAD" || strings.HasPrefix(rest, "objects/"):
		refuse(w, http.StatusForbidden, "the git gate speaks git's smart protocol alone: use a newer git")
	case rest == uploadPack || rest == receivePack:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "this is for git")
	default:
		refuse(w, http.StatusNotFound, "the git gate has nothing there")
	}
}

func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // who asked may be gone
}

// find returns the remote that a path is about, and what follows it.
func (g *Gate) find(path string) (*remote, string, error) {
	name, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), ".git/")
	if r := g.remotes[name]; ok && r != nil {
		return r, rest, nil
	}
	return nil, "", fmt.Errorf("the git gate has no remote of that name: %s", strings.Join(slices.Sorted(maps.Keys(g.remotes)), ", "))
}

// tellRefs says what there is upstream, now.
func (g *Gate) tellRefs(w http.ResponseWriter, req *http.Request, r *remote, service string) {
	began := time.Now()
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	err := g.refreshed(req.Context(), r, false, func(ctx context.Context, a *advert) error {
		if service == receivePack {
			_, err := w.Write(a.forPush())
			return err
		}
		out := &answerWriter{w: w, control: http.NewResponseController(w)}
		protocol := protocolOf(req)
		if protocol != "version=2" {
			if _, err := out.Write(pktline.AppendFlush(pktline.Append(nil, "# service="+service+"\n"))); err != nil {
				return err
			}
		}
		return r.git.Run(ctx, jail.Work{Out: out, Helpers: true, Protocol: protocol}, "upload-pack", "--stateless-rpc", "--advertise-refs", ".")
	})
	if err != nil {
		begin := pktline.AppendFlush(pktline.Append(nil, "# service="+service+"\n"))
		_, _ = w.Write(pktline.Append(begin, "ERR "+sentence(r, err)+"\n")) // who asked may be gone
		g.c.Observe(event(r, map[string]string{uploadPack: "fetch", receivePack: "push"}[service], began, err))
	}
}

// protocolOf is the version of the protocol that a client speaks.
func protocolOf(req *http.Request) string {
	for word := range strings.SplitSeq(req.Header.Get("Git-Protocol"), ":") {
		if protocolWord().MatchString(word) {
			return word
		}
	}
	return ""
}

// refreshed calls do when the mirror is what upstream is. It stays so meanwhile, as far as
// nothing of it is removed.
func (g *Gate) refreshed(ctx context.Context, r *remote, told bool, do func(ctx context.Context, a *advert) error) error {
	leave, err := g.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	a, done, err := r.current(ctx, told)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, uploadTime)
	defer cancel()
	return do(ctx, a)
}

// sentence is an error for the client. What no person may read is not in it.
func sentence(r *remote, err error) string {
	text := r.public(err)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return strings.ReplaceAll(words("git gate: "+r.Name+": "+text), "\n", "; ")
}

// public is what of an error a client may read: nothing of this machine's files and processes.
func (r *remote) public(err error) string {
	hide := func(s string) string { return strings.ReplaceAll(s, filepath.Dir(r.dir), "…") } // as git names files
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return hide(e.Error())
	}
	if errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError)) || errors.As(err, new(*os.SyscallError)) || errors.As(err, new(*exec.Error)) {
		return "something is wrong at the gate itself: its owner can see what"
	}
	return hide(err.Error())
}

// upload answers a fetch from the mirror.
func (g *Gate) upload(w http.ResponseWriter, req *http.Request, r *remote) {
	began := time.Now()
	_ = http.NewResponseController(w).EnableFullDuplex() // git answers before it has read all
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	out := &answerWriter{w: w, control: http.NewResponseController(w)}
	err := g.refreshed(req.Context(), r, true, func(ctx context.Context, _ *advert) error {
		body, err := asked(w, req, maxAsked)
		if err != nil {
			return err
		}
		return r.git.Run(ctx, jail.Work{In: body, Out: out, Helpers: true, Protocol: protocolOf(req)}, "upload-pack", "--stateless-rpc", ".")
	})
	if err != nil && out.err == nil && !out.began {
		_, _ = out.Write(pktline.Append(nil, "ERR "+sentence(r, err)+"\n")) // who asked may be gone
	}
	if out.packed || err != nil {
		g.c.Observe(event(r, "fetch", began, err))
	}
}

// event is what became of something.
func event(r *remote, service string, began time.Time, err error) Event {
	e := Event{Remote: r.Name, Service: service, Outcome: "done", Took: time.Since(began)}
	if err != nil {
		why := err.Error()
		if of, ok := errors.AsType[*sandbox.Error](err); ok && of.Err != nil && !strings.Contains(why, of.Err.Error()) {
			why += ": " + of.Err.Error()
		}
		if errors.Is(err, context.Canceled) {
			why = "git inside ended, or was ended"
		}
		e.Outcome, e.Why = "failed", words(why)
	}
	return e
}

// asked is the body of a request, of at most so many bytes. It may have come compressed.
func asked(w http.ResponseWriter, req *http.Request, most int64) (io.Reader, error) {
	body := &requestReader{r: http.MaxBytesReader(w, req.Body, most), control: http.NewResponseController(w)}
	switch req.Header.Get("Content-Encoding") {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errors.New("a request that is not compressed as it says")
		}
		return &atMost{r: z, left: most}, nil
	}
	return nil, errors.New("a request that is compressed in another way than git does")
}

// atMost fails where there is more than so many bytes.
type atMost struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (a *atMost) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, errors.New("a request that is longer than can be")
	}
	return n, err
}

// requestReader fails where a client sends nothing for long.
type requestReader struct {
	r       io.Reader
	control *http.ResponseController
}

// Read implements io.Reader.
func (r *requestReader) Read(p []byte) (int, error) {
	_ = r.control.SetReadDeadline(time.Now().Add(stallTime))      // not every server has them
	defer func() { _ = r.control.SetReadDeadline(time.Time{}) }() // it would end a request that waits
	return r.r.Read(p)
}

// answerWriter passes on at once what it gets, and fails where a client takes nothing for long.
type answerWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
	packed  bool   // a pack was among it
	last    []byte // of what came, as it may begin one
	err     error
}

// Write implements io.Writer.
func (a *answerWriter) Write(p []byte) (int, error) {
	a.began = true
	if !a.packed {
		const begins = "PACK\x00\x00\x00"
		text := append(a.last, p...)
		a.packed = bytes.Contains(text, []byte(begins))
		a.last = bytes.Clone(text[max(0, len(text)-len(begins)+1):])
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(stallTime))      // not every server has them
	defer func() { _ = a.control.SetWriteDeadline(time.Time{}) }() // as for what is read
	n, err := a.w.Write(p)
	if err == nil {
		err = a.control.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	if err != nil {
		a.err = err
	}
	return n, err
}
