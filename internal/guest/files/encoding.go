package files

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"
)

// decoded returns the body of a request without its Content-Encoding.
func decoded(r *http.Request) (io.Reader, error) {
	name, _, _ := strings.Cut(r.Header.Get("Content-Encoding"), ";")
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, faultf(connect.CodeInvalidArgument, "read the gzip body: %w", err)
		}
		return z, nil
	}
	return nil, faultf(connect.CodeInvalidArgument, "content encoding %.32q: only gzip and identity are known", name)
}

var errEncoding = errors.New("no acceptable encoding, supported: [identity, gzip]")

// accepted picks gzip or not for an answer, within the rules of RFC 9110
// 12.5.3: the one with the greater weight, gzip if they are the same and it was
// named. A client that names further encodings lists what their HTTP library can read
// rather than what they want, and gets identity: compressing is slower than any
// way out of a sandbox. plain says that only identity will do.
func accepted(header string, plain bool) (useGzip bool, err error) {
	w := weights(header)
	gz, named := w["gzip"]
	named = named && wanted(w)
	identity, ok := w["identity"]
	if star, has := w["*"]; has {
		if !ok && star == 0 {
			identity, ok = 0, true
		}
		if !named && star > 0 {
			gz = star
		}
	}
	if !ok {
		identity = 0.001 // acceptable, and anything that was asked for is better
	}
	switch {
	case plain && identity == 0:
		return false, fmt.Errorf("a range or condition was asked for: %w", errEncoding)
	case plain:
		return false, nil
	case gz > 0 && (identity == 0 || named && gz >= identity):
		return true, nil
	case identity == 0:
		return false, errEncoding
	}
	return false, nil
}

// wanted reports whether no encoding is named that is never sent.
func wanted(w map[string]float64) bool {
	for name, q := range w {
		if q > 0 && name != "gzip" && name != "identity" && name != "*" {
			return false
		}
	}
	return true
}

// weights parses an Accept-Encoding header. A weight that is no number
// counts as 1.
func weights(header string) map[string]float64 {
	w := make(map[string]float64)
	for item := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(item, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" {
			continue
		}
		q := 1.0
		for param := range strings.SplitSeq(params, ";") {
			k, v, _ := strings.Cut(strings.TrimSpace(param), "=")
			if f, err := strconv.ParseFloat(v, 64); strings.EqualFold(k, "q") && err == nil && f >= 0 && f <= 1 {
				q = f
			}
		}
		w[name] = q
	}
	return w
}
