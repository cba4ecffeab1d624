package ingress

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Why a caller is not let in. Each is fit to be shown. Of signatures E2B's own words are
// said, which its clients compare.
var (
	errNoToken      = errors.New("the sandbox's access token is needed")
	errWrongToken   = errors.New("this is not the sandbox's access token")
	errNoSignature  = errors.New("missing signature query parameter")
	errSignature    = errors.New("invalid signature")
	errSignatureEnd = errors.New("signature is already expired")
)

// checkSignature checks the signature of a link to one file: version 1 of
// E2B's. That it has expired is told only of one that was good.
func checkSignature(r *http.Request, token string, now time.Time) error {
	op := map[string]string{http.MethodGet: "read", http.MethodPost: "write"}[r.Method]
	q, err := url.ParseQuery(r.URL.RawQuery)
	if op == "" || err != nil || len(q["signature"]) > 1 || len(q["path"]) > 1 || len(q["username"]) > 1 ||
		len(q["signature_expiration"]) > 1 {
		return errSignature
	}
	if q.Get("signature") == "" {
		return errNoSignature
	}
	text := q.Get("path") + ":" + op + ":" + q.Get("username") + ":" + token
	expired := false
	if q.Has("signature_expiration") {
		end := q.Get("signature_expiration")
		sec, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return errSignature
		}
		expired = now.Unix() > sec
		text += ":" + end
	}
	sum := sha256.Sum256([]byte(text))
	switch {
	case !same(q.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:])):
		return errSignature
	case expired:
		return errSignatureEnd
	}
	return nil
}
