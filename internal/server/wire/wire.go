// Package wire reads JSON bodies strictly and writes errors, for every HTTP
// dialect that the server speaks.
//
// It refuses a body that is too large, is not JSON alone, names a field
// twice, or names one that the receiver does not know. What an error tells a
// stranger is its message and hint; the cause is for the log.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// MaxBody is the size of the largest JSON body that is read.
	MaxBody  = 1 << 20
	maxDepth = 32
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
		return api.Error{Code: string(e.Kind), Message: e.Msg, Hint: e.Hint}
	}
	return api.Error{Code: string(sandbox.Internal), Message: "internal error", Hint: "the daemon's log says why"}
}

// Error answers with err, in the shape of api.Error.
func Error(w http.ResponseWriter, err error) {
	ErrorAs(w, Status(sandbox.KindOf(err)), err)
}

// ErrorAs is Error with another status than the kind's own.
func ErrorAs(w http.ResponseWriter, status int, err error) {
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

func checkType(r *http.Request, types ...string) error {
	mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(types, mt) {
		return sandbox.Errorf(sandbox.Invalid, "body: its Content-Type is not %s", strings.Join(types, " or "))
	}
	return nil
}

// DecodeBytes reads one JSON value into v.
func DecodeBytes(b []byte, v any) error {
	if err := walk(b); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return invalid(err)
	}
	return nil
}

// walk checks what encoding/json lets pass: what follows the value, deep
// nesting, and a name that an object has twice.
func walk(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := walkValue(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return sandbox.Errorf(sandbox.Invalid, "body: more than one JSON value")
	}
	return nil
}

func walkValue(dec *json.Decoder, depth int) error {
	t, err := dec.Token()
	if err != nil {
		return invalid(err)
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return sandbox.Errorf(sandbox.Invalid, "body: nested deeper than %d", maxDepth)
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			t, err := dec.Token()
			if err != nil {
				return invalid(err)
			}
			name, _ := t.(string)
			if seen[name] {
				return sandbox.Errorf(sandbox.Invalid, "body: field %.80q is there twice", name)
			}
			seen[name] = true
		}
		if err := walkValue(dec, depth+1); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return invalid(err)
	}
	return nil
}

// invalid says what is wrong with a body in words that do not repeat values.
func invalid(err error) error {
	msg := "not JSON"
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		msg = fmt.Sprintf("field %q can't be a JSON %s", te.Field, jsonKind(te.Value))
		if te.Field == "" {
			msg = fmt.Sprintf("it can't be a JSON %s", jsonKind(te.Value))
		}
	} else if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		msg = fmt.Sprintf("there is no field %.80s", field)
	} else if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		msg = fmt.Sprintf("not JSON, at byte %d", se.Offset)
	}
	return sandbox.Errorf(sandbox.Invalid, "body: %s", msg)
}

// jsonKind drops the value that encoding/json adds for numbers.
func jsonKind(v string) string {
	kind, _, _ := strings.Cut(v, " ")
	return kind
}
