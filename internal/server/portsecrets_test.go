package server_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// No key and no token of ours reaches a server inside, wherever it is put and however its place
// is spelt; what is beside it does.
func TestPortSecrets(t *testing.T) {
	w := openWorld(t)
	sb := w.restricted(t)
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + w.full))
	for _, tt := range []struct{ name, header, value, query, want string }{
		{"the token's header with underscores", "X_Access_Token", "anything", "", ""},
		{"the traffic token's, too", "E2b_Traffic.Access_Token", "anything", "", ""},
		{"a key's header with underscores", "X_Api_Key", w.full, "", ""},
		{"a header of any name", "X-Mine", w.full, "", ""},
		{"a token in a header of any name", "X-Mine", sb.TrafficToken, "", ""},
		{"encoded", "X-Mine", "Basic " + basic, "", ""},
		{"encoded for a link", "Sec-Websocket-Protocol", "own, " + base64.RawURLEncoding.EncodeToString([]byte("?:"+w.full)), "", ""},
		{"in a referrer", "Referer", "https://x.example/?api_key=" + w.full + "&b=c", "", ""},
		{"in a cookie", "Cookie", "a=b; key=" + w.full + "; c=d", "", "a=b; c=d"},
		{"as the only cookie", "Cookie", "key=" + w.full, "", ""},
		{"in the query", "X-Mine", "stays", "a=b&api_key=" + w.full + "&c=%26", "stays?a=b&c=%26"},
		{"as a name in the query", "X-Mine", "stays", w.full, "stays?"},
		{"in the query with escapes", "X-Mine", "stays", "k=%" + fmt.Sprintf("%02x", w.full[0]) + w.full[1:], "stays?"},
		{"their own", "X_Api_Key", "its-own", "token=its-own", "its-own?token=its-own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := portOf(sb, map[string]string{tt.header: tt.value, "E2b-Traffic-Access-Token": sb.TrafficToken})
			if tt.query != "" {
				q.path = "/x?" + tt.query
			}
			if resp, body := w.do(t, q); resp.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			r := <-w.seen
			got := strings.Join(r.Header[http.CanonicalHeaderKey(tt.header)], "|")
			if tt.query != "" {
				got += "?" + r.URL.RawQuery
			}
			if got != tt.want {
				t.Errorf("%s with %s: inside %q is read, want %q", tt.header, tt.query, got, tt.want)
			}
		})
	}
}
