package proxy_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// TestNamesAsServersReadThem sends what CGI, PHP and others take for another
// method, another path or a credential, over both versions of HTTP and with an
// upgrade. Where no rule asks for anything, the same goes on.
func TestNamesAsServersReadThem(t *testing.T) {
	w := newWorld(t, policy.Policy{Rules: []policy.Rule{
		{ID: "read", Hosts: []string{"a.example"}, Matches: []policy.Match{{Methods: []string{"GET"}, Paths: []policy.Value{{Value: "/v1"}}}}},
		{ID: "secret", Hosts: []string{"b.example"}, Secrets: []policy.Secret{{Name: "TOKEN", Header: "Authorization"}}},
		{ID: "all", Hosts: []string{"c.example"}},
	}}, worldOptions{secrets: map[string]string{"TOKEN": "s3cr3t-value-of-the-token"}})
	fine := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "fine") })
	w.web("a.example", "45.0.0.1", fine)
	w.web("b.example", "45.0.0.2", fine)
	w.web("c.example", "45.0.0.3", fine)
	const request, credential = string(policy.CodeRequest), inject.CodeForeign
	tests := []struct{ host, field, query, code string }{
		{"a.example", "X_HTTP_Method_Override", "", request},
		{"a.example", "X_Original_URL", "", request},
		{"a.example", "X_Rewrite_URL", "", request},
		{"a.example", "X-Original-Method", "", request},
		{"a.example", "X-Forwarded-Uri", "", request},
		{"a.example", "", "_method=DELETE", request},
		{"a.example", "X_Request_Id", "method=photos.search", ""},
		{"b.example", "X_Api_Key", "", credential},
		{"b.example", "Private_Token", "", credential},
		{"b.example", "Jwt", "", credential},
		{"b.example", "", "access_token[]=own", credential},
		{"b.example", "", "+access_token=own", credential},
		{"b.example", "", "Signature=own", credential},
		{"b.example", "X_Request_Id", "page_token=own", ""},
	}
	for _, tt := range tests {
		for _, how := range []string{"http1", "http2", "upgrade"} {
			for _, host := range []string{tt.host, "c.example"} {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v1/x?"+tt.query, nil)
				if tt.field != "" {
					req.Header[tt.field] = []string{"/DELETE"}
				}
				if how == "upgrade" {
					req.Header["Upgrade"], req.Header["Connection"] = []string{"websocket"}, []string{"Upgrade"}
				}
				resp, err := w.client(how == "http2").Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				switch what := how + " " + host + " " + tt.field + tt.query; {
				case host == tt.host && tt.code != "":
					wantRefused(t, what, resp, string(body), 403, tt.code)
				case resp.StatusCode != 200:
					t.Errorf("%s: %d %s", what, resp.StatusCode, body)
				}
			}
		}
	}
}
