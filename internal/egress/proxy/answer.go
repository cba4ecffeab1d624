package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
)

// bodyOf is what a refused request is answered with: one line.
func bodyOf(r *Refusal) []byte {
	b, err := json.Marshal(api.GateRefusal{Code: r.Code, Message: r.Reason, Rule: r.Rule, Host: r.Host, Hint: r.Hint, What: r.What})
	if err != nil {
		b = []byte(`{"code":"internal","message":"","rule":"","host":"","hint":""}`) // strings alone are in it
	}
	return append(b, '\n')
}

// rawAnswer is a whole answer of HTTP/1, after which the connection is closed.
func rawAnswer(r *Refusal) []byte {
	body := bodyOf(r)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\n%s: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		r.Status, http.StatusText(r.Status), contentJSON, refusedHeader, r.Code, len(body), body)
}

// refuse answers a request with a refusal, or resets it where its answer had
// begun. A refusal that is shared is not changed.
func (x *exchange) refuse(why *Refusal) {
	if why.Host == "" {
		named := *why
		named.Host = withPort(x.host(), x.dst.Port(), x.cn.tls)
		why = &named
	}
	x.note(why)
	if x.begun {
		panic(http.ErrAbortHandler)
	}
	x.status, x.begun = why.Status, true
	if x.cn.kind != info || x.service != "" {
		x.record() // before the guest hears of it
	}
	h := x.w.Header()
	clear(h)
	h.Set(refusedHeader, why.Code)
	if why.Code == CodeLimit && why.Status == http.StatusTooManyRequests {
		h.Set("Retry-After", strings.TrimSuffix(strings.TrimPrefix(why.Hint, "try again in "), " s"))
	}
	if why.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(why.RetryAfter))
	}
	if x.r.ProtoMajor > 1 && isGRPC(x.r.Header) {
		refuseGRPC(x.w, why)
		return
	}
	body := bodyOf(why)
	h.Set("Content-Type", contentJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if x.r.ProtoMajor == 1 && (why.Code == CodeBadRequest || why.Code == CodeNameMismatch) {
		h.Set("Connection", "close") // what else is sent on it is not worth reading
	}
	x.w.WriteHeader(why.Status)
	_, _ = x.w.Write(body)
}

// refuseGRPC answers with trailers alone, as gRPC has it: its clients read the
// reason there and nowhere else.
func refuseGRPC(w http.ResponseWriter, why *Refusal) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(grpcStatus(why.Status)))
	text := why.Code + ": " + why.Reason
	if why.Hint != "" {
		text += " (" + why.Hint + ")"
	}
	h.Set("Grpc-Message", grpcMessage(text))
	w.WriteHeader(http.StatusOK)
}

// grpcStatus is the code of gRPC for a status of HTTP.
func grpcStatus(status int) int {
	const invalid, denied, exhausted, unavailable = 3, 7, 8, 14
	switch status {
	case http.StatusBadRequest, http.StatusRequestHeaderFieldsTooLarge:
		return invalid
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return exhausted
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unavailable
	}
	return denied
}

// grpcMessage encodes a text as gRPC's header wants it.
func grpcMessage(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
