package content

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"golang.org/x/sys/unix"
)

// Statuses of faults.
const (
	badRequest = http.StatusBadRequest
	notFound   = http.StatusNotFound
	conflict   = http.StatusConflict
	full       = http.StatusInsufficientStorage
)

// fault is an error that a client may read.
type fault struct {
	status int
	text   string
}

func (f *fault) Error() string { return f.text }

func faultf(status int, format string, args ...any) *fault {
	return &fault{status, fmt.Sprintf(format, args...)}
}

var errNoFile = faultf(badRequest, "it is neither a file nor a directory")

// explain turns what went wrong at a path into something to answer.
func explain(err error, rel string) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	p := shown(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return faultf(notFound, "%s: not found", p)
	case errors.Is(err, unix.EEXIST):
		return faultf(conflict, "%s: it exists (to have it replaced, say force)", p)
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY):
		return faultf(conflict, "%s: it is a directory", p)
	case errors.Is(err, unix.ENOTDIR):
		return faultf(badRequest, "%s: a part of it is a file, not a directory", p)
	case errors.Is(err, unix.EXDEV):
		return faultf(badRequest, "%s: a link on the way leads out of the volume", p)
	case errors.Is(err, unix.ELOOP):
		return faultf(badRequest, "%s: links lead in a circle", p)
	case errors.Is(err, unix.ENAMETOOLONG):
		return faultf(badRequest, "a name in the path is too long")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return faultf(full, "%s: no space left in the volume", p)
	case errors.Is(err, unix.EROFS):
		return faultf(conflict, "%s: the volume is read-only: its file system is damaged", p)
	}
	return faultf(http.StatusInternalServerError, "%s: could not be done", p)
}

// codes are the machine's words for statuses.
var codes = map[int]string{
	badRequest: "invalid", notFound: "not_found", conflict: "conflict", full: "exhausted",
	http.StatusUnauthorized: "denied", http.StatusForbidden: "denied", http.StatusTooManyRequests: "exhausted",
	http.StatusServiceUnavailable: "unavailable", http.StatusMethodNotAllowed: "invalid",
}

// Fail answers with an error as the content API has it.
func Fail(w http.ResponseWriter, status int, message string) {
	code, ok := codes[status]
	if !ok {
		code = "internal"
	}
	answer(w, status, struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{code, message})
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"code":"internal","message":"the answer can't be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
