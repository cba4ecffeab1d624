package ingress

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

const signingToken = "0123456789abcdef"

// signedLink is a link as E2B's SDKs make them.
func signedLink(op, path, user, end string) url.Values {
	text := path + ":" + op + ":" + user + ":" + signingToken
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	if end != "" {
		text += ":" + end
		q.Set("signature_expiration", end)
	}
	sum := sha256.Sum256([]byte(text))
	q.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
	return q
}

func TestCheckSignature(t *testing.T) {
	now := time.Unix(1000, 0)
	edit := func(q url.Values, name string, values ...string) url.Values {
		q.Del(name)
		for _, v := range values {
			q.Add(name, v)
		}
		return q
	}
	tests := []struct {
		name, method string
		q            url.Values
		want         error
	}{
		{"read", "GET", signedLink("read", "a b/ä", "", ""), nil},
		{"write", "POST", signedLink("write", "", "root", ""), nil},
		{"last-second", "GET", signedLink("read", "a", "", "1000"), nil},
		{"a-second-later", "GET", signedLink("read", "a", "", "999"), errSignatureEnd},
		{"expired-and-forged", "GET", edit(signedLink("read", "a", "", "999"), "path", "b"), errSignature},
		{"expiry-moved", "GET", edit(signedLink("read", "a", "", "999"), "signature_expiration", "2000"), errSignature},
		{"expiry-no-number", "GET", signedLink("read", "a", "", "soon"), errSignature},
		{"expiry-empty", "GET", edit(signedLink("read", "a", "", ""), "signature_expiration", ""), errSignature},
		{"expiry-twice", "GET", edit(signedLink("read", "a", "", "1000"), "signature_expiration", "1000", "1"), errSignature},
		{"path-twice", "GET", edit(signedLink("read", "a", "", ""), "path", "a", "b"), errSignature},
		{"user-twice", "GET", edit(signedLink("read", "a", "user", ""), "username", "user", "root"), errSignature},
		{"signature-twice", "GET", edit(signedLink("read", "a", "", ""), "signature", "v1_x", "v1_y"), errSignature},
		{"no-signature", "GET", edit(signedLink("read", "a", "", ""), "signature"), errNoSignature},
		{"for-another-method", "POST", signedLink("read", "a", "", ""), errSignature},
		{"for-no-method", "DELETE", signedLink("read", "a", "", ""), errSignature},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, "/files?"+tt.q.Encode(), nil)
			if err := checkSignature(r, signingToken, now); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// FuzzCheckSignature looks for a query that is let in without having been
// signed as it is.
func FuzzCheckSignature(f *testing.F) {
	f.Add("GET", signedLink("read", "a", "root", "1000").Encode())
	f.Add("POST", signedLink("write", "a;b", "", "").Encode())
	f.Add("GET", "path=a&signature=v1_&signature_expiration=%zz")
	f.Fuzz(func(t *testing.T, method, query string) {
		r := &http.Request{Method: method, URL: &url.URL{Path: "/files", RawQuery: query}}
		if checkSignature(r, signingToken, time.Unix(1000, 0)) != nil {
			return
		}
		q := r.URL.Query()
		op := map[string]string{"GET": "read", "POST": "write"}[method]
		if want := signedLink(op, q.Get("path"), q.Get("username"), q.Get("signature_expiration")); q.Get("signature") != want.Get("signature") {
			t.Errorf("%s %q was let in", method, query)
		}
	})
}
