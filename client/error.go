package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of what is read of an answer.
const (
	maxError  = 64 << 10
	maxAnswer = 64 << 20
)

// Error is an error whose text is fit to show: errors.As finds it in every
// error that the daemon or a guest answered. Its Kind says what to do.
type Error = sandbox.Error

// Kind classifies an Error.
type Kind = sandbox.Kind

// The kinds of errors.
const (
	Invalid     = sandbox.Invalid
	NotFound    = sandbox.NotFound
	Conflict    = sandbox.Conflict
	Denied      = sandbox.Denied
	Unsupported = sandbox.Unsupported
	Exhausted   = sandbox.Exhausted
	Unavailable = sandbox.Unavailable
	Internal    = sandbox.Internal
)

// KindOf returns the kind of the first Error in err's chain, Internal where
// there is none, and "" for nil.
func KindOf(err error) Kind { return sandbox.KindOf(err) }

// readError turns an answer outside 2xx into an error.
func readError(resp *http.Response) *Error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	var e api.Error
	if err == nil && json.Unmarshal(b, &e) == nil && e.Message != "" {
		if what, unknown := strings.CutSuffix(e.Message, ": "+api.NoSuchPath); unknown && e.Code == string(NotFound) {
			return &Error{
				Kind: Unsupported, Msg: fmt.Sprintf("the daemon that runs is older than this program: it does not know %s", what),
				Hint: "carboy daemon stop: the next command starts one of this version, and sandboxes go on meanwhile",
			}
		}
		if kind := kindOfText(e.Code); kind != "" {
			return &Error{Kind: kind, Msg: e.Message, Hint: e.Hint, Again: e.Again}
		}
	}
	var g struct { // a guest's HTTP paths answer in envd's form
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err == nil && json.Unmarshal(b, &g) == nil && g.Message != "" {
		return &Error{Kind: kindOfStatus(resp.StatusCode), Msg: g.Message}
	}
	kind := Internal
	if resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout {
		kind = Unavailable
	}
	return &Error{Kind: kind, Msg: fmt.Sprintf("the daemon answered %s", resp.Status), Err: err}
}

// kindOfStatus is the table from the statuses of envd's HTTP paths.
func kindOfStatus(status int) Kind {
	switch status {
	case http.StatusBadRequest, http.StatusNotAcceptable, http.StatusRequestEntityTooLarge:
		return Invalid
	case http.StatusUnauthorized, http.StatusForbidden:
		return Denied
	case http.StatusNotFound:
		return NotFound
	case http.StatusConflict:
		return Conflict
	case http.StatusNotImplemented:
		return Unsupported
	case http.StatusInsufficientStorage, http.StatusTooManyRequests:
		return Exhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Unavailable
	}
	return Internal
}

// kindOfText returns the kind that the wire calls code: a Kind, or one of
// Connect's codes, which a guest answers with. It returns "" for others.
func kindOfText(code string) Kind {
	switch k := Kind(code); k {
	case Invalid, NotFound, Conflict, Denied, Unsupported, Exhausted, Unavailable, Internal:
		return k
	}
	var c connect.Code
	if c.UnmarshalText([]byte(code)) != nil {
		return ""
	}
	return kindOfCode(c)
}

// kindOfCode is the table from Connect's codes, which a guest answers with.
func kindOfCode(c connect.Code) Kind {
	switch c {
	case connect.CodeInvalidArgument, connect.CodeOutOfRange:
		return Invalid
	case connect.CodeNotFound:
		return NotFound
	case connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeAborted:
		return Conflict
	case connect.CodePermissionDenied, connect.CodeUnauthenticated:
		return Denied
	case connect.CodeUnimplemented:
		return Unsupported
	case connect.CodeResourceExhausted:
		return Exhausted
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return Unavailable
	default:
		return Internal
	}
}

// rpcError turns the error of a call to a guest into an Error. lost says that
// the connection broke or nobody answered, so that the call may be repeated.
func (c *Client) rpcError(err error) (e *Error, lost bool) {
	if e, ok := errors.AsType[*Error](err); ok { // the daemon's own words
		return e, e.Kind == Unavailable
	}
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(err) {
		return &Error{
			Kind: Unavailable,
			Msg:  fmt.Sprintf("daemon at %s: the connection was lost", c.where),
			Hint: "carboy daemon status",
			Err:  err,
		}, true
	}
	kind := kindOfCode(ce.Code())
	return &Error{Kind: kind, Msg: ce.Message(), Err: err}, kind == Unavailable
}
