// Package wire reads JSON bodies strictly and writes errors, for every HTTP
// dialect that the server speaks.
//
// It refuses a body that is too large, and what package strict does. What an error tells a
// stranger is its message and hint; the cause is for the log.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

const (
	// MaxBody is the size of the largest JSON body that is read.
	MaxBody = 1 << 20
)

// statusOf is the HTTP status of each kind of error.
var statusOf = map[sandbox.Kind]int{
	sandbox.Invalid:     http.StatusBadRequest,
	sandbox.NotFound:    http.StatusNotFound,
	sandbox.Conflict:    http.StatusConflict,
	sandbox.Denied:      http.StatusForbidden,
	sandbox.Unsupported: http.StatusNotImplemented,
	sandbox.Exhausted:   http.StatusTooManyRequests,
	sandbox.Unavailable: http.StatusServiceUnavailable,
	sandbox.Internal:    http.StatusInternalServerError,
}

// Status returns the HTTP status of a kind of error.
func Status(k sandbox.Kind) int {
	if s, ok := statusOf[k]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Describe returns what of err a caller is told.
func Describe(err error) api.Error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return api.Error{Code: string(e.Kind), Message: e.Msg, Hint: e.Hint, Again: e.Again}
	}
	return api.Error{Code: string(sandbox.Internal), Message: "internal error", Hint: sandbox.LogHint}
}

// Error answers with err, in the shape of api.Error.
func Error(w http.ResponseWriter, err error) {
	ErrorAs(w, Status(sandbox.KindOf(err)), err)
}

// ErrorAs is Error with another status than the kind's own.
func ErrorAs(w http.ResponseWriter, status int, err error) {
	Failed(w, err)
	e := Describe(err)
	w.Header().Set(api.HeaderError, e.Code)
	RetryAfter(w, err)
	JSON(w, status, e)
}

// RetryAfter tells when another try is worth it, where err knows: in whole
// seconds, and never too early.
func RetryAfter(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Retry > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64((e.Retry+time.Second-1)/time.Second), 10))
	}
}

// JSON answers with v.
func JSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // v is one of our own types
		status, b = http.StatusInternalServerError, []byte(`{"code":"internal","message":"internal error"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // nobody is left to tell
}

// Decode reads the body of r into v. An empty body is an error unless
// optional is set; v is left as it is then.
func Decode(r *http.Request, v any, optional bool) error {
	b, err := read(r)
	if err != nil || optional && len(bytes.TrimSpace(b)) == 0 {
		return err
	}
	if err := checkType(r, "application/json"); err != nil {
		return err
	}
	return DecodeBytes(b, v)
}

// Body reads the body of r, which is of one of types: what is in it is for the
// caller to read strictly.
func Body(r *http.Request, types ...string) ([]byte, error) {
	if err := checkType(r, types...); err != nil {
		return nil, err
	}
	b, err := read(r)
	if err == nil && len(bytes.TrimSpace(b)) == 0 {
		err = sandbox.Errorf(sandbox.Invalid, "body: it is empty")
	}
	return b, err
}

// Large reads a body in JSON of at most limit bytes: what is in it is for the
// caller to read strictly.
func Large(r *http.Request, limit int64) ([]byte, error) {
	if err := checkType(r, "application/json"); err != nil {
		return nil, err
	}
	return readAtMost(r, limit)
}

func read(r *http.Request) ([]byte, error) { return readAtMost(r, MaxBody) }

func readAtMost(r *http.Request, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		e := sandbox.Errorf(sandbox.Invalid, "body: it could not be read")
		e.Err = err
		return nil, e
	case int64(len(b)) > limit:
		return nil, sandbox.Errorf(sandbox.Invalid, "body: larger than %d bytes", limit)
	}
	return b, nil
}

// checkType refuses another type, and none: a page in a browser can send those without asking.
func checkType(r *http.Request, types ...string) error {
	said := r.Header.Get("Content-Type")
	mt, _, err := mime.ParseMediaType(said)
	if err == nil && slices.Contains(types, mt) {
		return nil
	}
	e := sandbox.Errorf(sandbox.Invalid, "body: its Content-Type is %.80q, not %s", said, strings.Join(types, " or "))
	if said == "" {
		e = sandbox.Errorf(sandbox.Invalid, "body: it comes without a Content-Type, and has to be %s", strings.Join(types, " or "))
	}
	return e.WithHint("send the header Content-Type: %s", types[0])
}

// DecodeBytes reads one JSON value into v, by exact names. null is none: it would be taken for
// an object that says nothing.
func DecodeBytes(b []byte, v any) error {
	if string(bytes.TrimSpace(b)) == "null" {
		return sandbox.Errorf(sandbox.Invalid, "body: it is null").WithHint("send an object; one that says nothing is {}")
	}
	err := strict.Unmarshal(b, v)
	if err == nil {
		return nil
	}
	msg := "a value is none that can be" // the rest could repeat it
	if e, ok := errors.AsType[*strict.Error](err); ok {
		msg = e.Msg
	}
	return sandbox.Errorf(sandbox.Invalid, "body: %s", msg)
}
