package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"connectrpc.com/connect"
)

// fault is an error with the kind that its cause does not tell.
type fault struct {
	code connect.Code
	err  error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// faultf returns a fault of the given kind.
func faultf(code connect.Code, format string, args ...any) error {
	return &fault{code: code, err: fmt.Errorf(format, args...)}
}

// causes says what kind of error a system call's answer is. The first that
// matches counts.
var causes = []struct {
	errno error
	code  connect.Code
}{
	{syscall.ENOENT, connect.CodeNotFound},
	{syscall.EACCES, connect.CodePermissionDenied},
	{syscall.EPERM, connect.CodePermissionDenied},
	{syscall.EROFS, connect.CodePermissionDenied},
	{syscall.ENOSPC, connect.CodeResourceExhausted},
	{syscall.EDQUOT, connect.CodeResourceExhausted},
	{syscall.EMFILE, connect.CodeResourceExhausted},
	{syscall.ENFILE, connect.CodeResourceExhausted},
	{syscall.EEXIST, connect.CodeAlreadyExists},
	{syscall.ENOTEMPTY, connect.CodeAlreadyExists},
	{syscall.ENOTDIR, connect.CodeInvalidArgument},
	{syscall.EISDIR, connect.CodeInvalidArgument},
	{syscall.EINVAL, connect.CodeInvalidArgument},
	{syscall.ENAMETOOLONG, connect.CodeInvalidArgument},
	{syscall.EFBIG, connect.CodeInvalidArgument},
	{syscall.ELOOP, connect.CodeFailedPrecondition},
	{syscall.EXDEV, connect.CodeFailedPrecondition},
	{syscall.EBUSY, connect.CodeFailedPrecondition},
	{syscall.ETXTBSY, connect.CodeFailedPrecondition},
	{context.Canceled, connect.CodeCanceled},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
	{ErrClosed, connect.CodeUnavailable},
}

// codeOf returns the kind of err.
func codeOf(err error) connect.Code {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.code
	}
	for _, c := range causes {
		if errors.Is(err, c.errno) {
			return c.code
		}
	}
	return connect.CodeInternal
}

// also adds to err what went wrong after it. Either may be nil.
func also(err, more error) error {
	if err == nil || more == nil {
		return cmp.Or(err, more)
	}
	return fmt.Errorf("%w; %w", err, more)
}

// rpcError makes err the answer of a call. The text is cleaned, for it holds
// names that the guest chose and must be valid UTF-8.
func rpcError(err error) error {
	if err == nil {
		return nil
	}
	code := codeOf(err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		code = connect.CodeInternal // E2B's SDKs take the other for a rate limit
	}
	return connect.NewError(code, errors.New(toValid(err.Error())))
}

// statusOf returns the HTTP status of err, as envd's /files has them.
func statusOf(err error) int {
	switch codeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeAlreadyExists:
		return http.StatusBadRequest
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeResourceExhausted:
		return http.StatusInsufficientStorage
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// httpError answers with err in the form of envd's errors.
func httpError(w http.ResponseWriter, err error) {
	message := err.Error()
	if errors.Is(err, syscall.ENOSPC) {
		message = "not enough disk space available: " + message
	}
	httpErrorStatus(w, statusOf(err), message)
}

func httpErrorStatus(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, struct {
		Message string `json:"message"`
		Code    int    `json:"code"`
	}{message, status})
}

// writeJSON answers with v. What can't be sent is the client's loss: it is
// gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"message":"answer can't be encoded","code":500}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
