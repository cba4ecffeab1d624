package inject_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

const (
	placeholder  = "carboy_secret_token_abcdefghijklmnopqrstuvwxyz012345"
	placeholder2 = "carboy_secret_other_zyxwvutsrqponmlkjihgfedcba543210"
	value        = "ghp_R3alT0kenValue+/=with\"odd&chars"
	value2       = "another-real-value-0123456789"
)

func newGuard() *inject.Guard {
	return inject.NewGuard(inject.Options{
		Placeholders: map[string]string{"TOKEN": placeholder, "OTHER": placeholder2},
		Value: func(_ context.Context, name string) (string, error) {
			switch name {
			case "TOKEN":
				return value, nil
			case "OTHER":
				return value2, nil
			case "SHORT":
				return "short", nil
			case "LINES":
				return "two\r\nInjected: lines", nil
			}
			return "", errors.New("the cause, with " + value)
		},
	})
}

// ask is a request as a test writes it: "METHOD URL", fields, and a body.
type ask struct {
	line   string
	fields string // "Name: value" lines
	body   string
}

func (a ask) request(t *testing.T) *http.Request {
	t.Helper()
	method, url, _ := strings.Cut(a.line, " ")
	if !strings.Contains(url, "://") {
		url = "https://api.example" + url
	}
	var body io.Reader
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(a.fields) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			r.Header.Add(name, v)
		}
	}
	return r
}

func bearer() *policy.Route {
	return &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Header: "Authorization", Scheme: "Bearer"}}}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestRequestPutsIn(t *testing.T) {
	const jsonType, formType = "Content-Type: application/json; charset=utf-8", "Content-Type: application/x-www-form-urlencoded"
	route := func(s ...policy.Secret) *policy.Route { return &policy.Route{Secrets: s} }
	tests := []struct {
		name  string
		ask   ask
		route *policy.Route
		field string // "Name: value" that is there afterwards
		query string
		body  string
		used  string
	}{
		{name: "no-route", ask: ask{line: "GET /a?b=c", fields: "Authorization: Bearer own", body: "text"}, field: "Authorization: Bearer own", query: "b=c", body: "text"},
		{name: "bearer-absent", ask: ask{line: "GET /"}, route: bearer(), field: "Authorization: Bearer " + value, used: "TOKEN"},
		{name: "bearer-empty", ask: ask{line: "GET /", fields: "Authorization: "}, route: bearer(), field: "Authorization: Bearer " + value, used: "TOKEN"},
		{name: "bearer-placeholder", ask: ask{line: "GET /", fields: "Authorization: Bearer " + placeholder}, route: bearer(), field: "Authorization: Bearer " + value, used: "TOKEN"},
		{name: "scheme-in-capitals", ask: ask{line: "GET /", fields: "Authorization: BEARER  " + placeholder}, route: bearer(), field: "Authorization: Bearer " + value, used: "TOKEN"},
		{name: "other-scheme", ask: ask{line: "GET /", fields: "Authorization: token " + placeholder}, route: bearer(), field: "Authorization: Bearer " + value, used: "TOKEN"},
		{name: "default-scheme", ask: ask{line: "GET /"}, route: route(policy.Secret{Name: "TOKEN", Header: "authorization"}), field: "Authorization: Bearer " + value, used: "TOKEN"},
		{
			name: "basic", ask: ask{line: "GET /", fields: "Authorization: " + basic("anybody", placeholder)},
			route: route(policy.Secret{Name: "TOKEN", Header: "Authorization", Scheme: "Basic", Username: "bot"}), field: "Authorization: " + basic("bot", value), used: "TOKEN",
		},
		{name: "named-header", ask: ask{line: "GET /", fields: "X-Api-Key: " + placeholder}, route: route(policy.Secret{Name: "TOKEN", Header: "x-api-key"}), field: "X-Api-Key: " + value, used: "TOKEN"},
		{
			name: "two-secrets", ask: ask{line: "GET /", fields: "X-Api-Key: " + placeholder2},
			route: route(policy.Secret{Name: "TOKEN", Header: "Authorization"}, policy.Secret{Name: "OTHER", Header: "X-Api-Key"}), field: "X-Api-Key: " + value2, used: "OTHER TOKEN",
		},
		{
			name: "one-of-two-for-a-field", ask: ask{line: "GET /", fields: "X-Api-Key: " + placeholder2},
			route: route(policy.Secret{Name: "TOKEN", Header: "X-Api-Key"}, policy.Secret{Name: "OTHER", Header: "X-Api-Key"}), field: "X-Api-Key: " + value2, used: "OTHER",
		},
		{
			name: "query", ask: ask{line: "GET /?a=1&key=" + placeholder + "&b=%20"}, route: route(policy.Secret{Name: "TOKEN", Query: "key"}),
			query: "a=1&key=ghp_R3alT0kenValue%2B%2F%3Dwith%22odd%26chars&b=%20", used: "TOKEN",
		},
		{name: "query-absent", ask: ask{line: "GET /?a=1"}, route: route(policy.Secret{Name: "TOKEN", Query: "key"}), query: "a=1"},
		{
			name: "json-below", ask: ask{line: "POST /", fields: jsonType, body: `{"a": 1, "auth": [ {"to/ken" : "` + placeholder + `"} ] }`},
			route: route(policy.Secret{Name: "TOKEN", Body: "/auth/0/to~1ken"}), body: `{"a": 1, "auth": [ {"to/ken" : "ghp_R3alT0kenValue+/=with\"odd&chars"} ] }`, used: "TOKEN",
		},
		{
			name: "json-absent", ask: ask{line: "POST /", fields: jsonType, body: `{"auth":{"0":{}}}`},
			route: route(policy.Secret{Name: "TOKEN", Body: "/auth/0/to~1ken"}), body: `{"auth":{"0":{}}}`,
		},
		{
			name: "json-found", ask: ask{line: "POST /", fields: jsonType, body: `{"a": 1, "token" : "` + placeholder + `" }`},
			route: route(policy.Secret{Name: "TOKEN", Body: "/token"}), body: `{"a": 1, "token" : "ghp_R3alT0kenValue+/=with\"odd&chars" }`, used: "TOKEN",
		},
		{
			name: "json-in-a-list", ask: ask{line: "POST /", fields: jsonType, body: `{"auth":["` + placeholder + `",2]}`},
			route: route(policy.Secret{Name: "TOKEN", Body: "/auth/0"}), body: `{"auth":["ghp_R3alT0kenValue+/=with\"odd&chars",2]}`, used: "TOKEN",
		},
		{
			name: "form", ask: ask{line: "POST /", fields: formType, body: "grant=x&client_secret=" + placeholder + "&z="},
			route: route(policy.Secret{Name: "TOKEN", Body: "client_secret"}), body: "grant=x&client_secret=ghp_R3alT0kenValue%2B%2F%3Dwith%22odd%26chars&z=", used: "TOKEN",
		},
		{name: "guest-keeps-own", ask: ask{line: "GET /", fields: "Authorization: Bearer own"}, route: &policy.Route{Secrets: bearer().Secrets, Auth: policy.AuthGuest}, field: "Authorization: Bearer own"},
		{name: "guest-has-none", ask: ask{line: "GET /"}, route: &policy.Route{Secrets: bearer().Secrets, Auth: policy.AuthGuest}, field: "Authorization: Bearer " + value, used: "TOKEN"},
		{name: "cookie-is-left-out", ask: ask{line: "GET /", fields: "Cookie: session=1"}, route: bearer(), field: "Cookie: ", used: "TOKEN"},
		{name: "session-is-left-out", ask: ask{line: "GET /", fields: "X-Session-Id: ses_1"}, route: bearer(), field: "X-Session-Id: ", used: "TOKEN"},
		{name: "session-underscores", ask: ask{line: "GET /", fields: "X_Session_Id: ses_1"}, route: bearer(), field: "X_Session_Id: ", used: "TOKEN"},
		{name: "guest-keeps-session", ask: ask{line: "GET /", fields: "X-Session-Id: own"}, route: &policy.Route{Secrets: bearer().Secrets, Auth: policy.AuthGuest}, field: "X-Session-Id: own", used: "TOKEN"},
		{name: "harmless-fields", ask: ask{line: "GET /?page_token=1", fields: "X-Csrf-Token: 1\nX_Xsrf_Token: 1\nIdempotency-Key: 2"}, route: bearer(), query: "page_token=1", field: "Idempotency-Key: 2", used: "TOKEN"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.ask.request(t)
			x, why := newGuard().Request(t.Context(), r, tt.route)
			if why != nil {
				t.Fatalf("refused: %s: %s", why.Code, why.Reason)
			}
			if name, want, ok := strings.Cut(tt.field, ": "); ok && strings.Join(r.Header.Values(name), "|") != want {
				t.Errorf("%s is %q, want %q", name, r.Header.Values(name), want)
			}
			if r.URL.RawQuery != tt.query {
				t.Errorf("the query is %q, want %q", r.URL.RawQuery, tt.query)
			}
			if got := readBody(t, r); got != tt.body {
				t.Errorf("the body is %q, want %q", got, tt.body)
			}
			if tt.body != "" && r.ContentLength != int64(len(tt.body)) {
				t.Errorf("its length is said to be %d, want %d", r.ContentLength, len(tt.body))
			}
			if got := strings.Join(x.Used(), " "); got != tt.used {
				t.Errorf("used %q, want %q", got, tt.used)
			}
		})
	}
}

func readBody(t *testing.T, r *http.Request) string {
	t.Helper()
	if r.Body == nil {
		return ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("read the body: %v", err)
	}
	return string(b)
}

func TestRequestRefuses(t *testing.T) {
	const jsonType, formType = "Content-Type: application/json", "Content-Type: application/x-www-form-urlencoded"
	body := func(field string) *policy.Route {
		return &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Body: field}}}
	}
	query := &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Query: "key"}}}
	named := func(name string) *policy.Route {
		return &policy.Route{Secrets: []policy.Secret{{Name: name, Header: "Authorization"}}}
	}
	tests := []struct {
		name  string
		ask   ask
		route *policy.Route
		want  string
	}{
		{"another-host", ask{line: "GET /", fields: "Authorization: Bearer " + placeholder}, nil, inject.CodeMisplaced},
		{"another-host-basic", ask{line: "GET /", fields: "Authorization: " + basic("me", placeholder)}, nil, inject.CodeMisplaced},
		{"another-field", ask{line: "GET /", fields: "X-Note: it is " + placeholder}, bearer(), inject.CodeMisplaced},
		{"a-field's-name", ask{line: "GET /", fields: placeholder + ": 1"}, bearer(), inject.CodeMisplaced},
		{"the-path", ask{line: "GET /" + placeholder}, bearer(), inject.CodeMisplaced},
		{"the-path-encoded", ask{line: "GET /" + strings.ReplaceAll(placeholder, "a", "%61")}, bearer(), inject.CodeMisplaced},
		{"the-query", ask{line: "GET /?q=" + placeholder}, bearer(), inject.CodeMisplaced},
		{"the-host", ask{line: "GET https://" + strings.ReplaceAll(placeholder, "_", "-") + ".example/" + placeholder}, nil, inject.CodeMisplaced},
		{"a-gist", ask{line: "POST /gists", fields: jsonType, body: `{"files":{"a":{"content":"` + placeholder + `"}}}`}, bearer(), inject.CodeMisplaced},
		{"with-more-around", ask{line: "GET /", fields: "Authorization: Bearer x" + placeholder}, bearer(), inject.CodeMisplaced},
		{"as-the-user", ask{line: "GET /", fields: "Authorization: " + basic(placeholder, "x")}, bearer(), inject.CodeMisplaced},
		{"another's-place", ask{line: "GET /", fields: "Authorization: Bearer " + placeholder2}, bearer(), inject.CodeMisplaced},
		{"twice", ask{line: "GET /", fields: "Authorization: Bearer " + placeholder + "\nAuthorization: Bearer " + placeholder}, bearer(), inject.CodeMisplaced},
		{"own-key", ask{line: "GET /", fields: "Authorization: Bearer sk-own"}, bearer(), inject.CodeForeign},
		{"own-key-elsewhere", ask{line: "GET /", fields: "X-Api-Key: sk-own"}, bearer(), inject.CodeForeign},
		{"own-key-in-the-query", ask{line: "GET /?access_token=own"}, bearer(), inject.CodeForeign},
		{"own-key-encoded", ask{line: "GET /?%61ccess_token=own"}, bearer(), inject.CodeForeign},
		{"own-key-after-a-semicolon", ask{line: "GET /?a=1;api_key=own"}, bearer(), inject.CodeForeign},
		{"own-signed-link", ask{line: "GET /?X-Amz-Signature=00"}, bearer(), inject.CodeForeign},
		{"own-key-underscores", ask{line: "GET /", fields: "X_Api_Key: own"}, bearer(), inject.CodeForeign},
		{"own-key-dots", ask{line: "GET /", fields: "x.api.key: own"}, bearer(), inject.CodeForeign},
		{"session-in-a-place", ask{line: "GET /", fields: "X_Session_Id: own"}, &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Header: "X-Session-Id"}}}, inject.CodeForeign},
		{"placeholder-in-a-session", ask{line: "GET /", fields: "X-Session-Id: " + placeholder}, bearer(), inject.CodeMisplaced},
		{"own-private-token", ask{line: "GET /", fields: "Private_Token: own"}, bearer(), inject.CodeForeign},
		{"own-token", ask{line: "GET /", fields: "Token: own"}, bearer(), inject.CodeForeign},
		{"own-jwt", ask{line: "GET /", fields: "Jwt: own"}, bearer(), inject.CodeForeign},
		{"own-proof", ask{line: "GET /", fields: "DPoP: own"}, bearer(), inject.CodeForeign},
		{"own-signature", ask{line: "GET /", fields: "X_Amz_Security_Token: own"}, bearer(), inject.CodeForeign},
		{"own-place-underscores", ask{line: "GET /", fields: "X_License: own"}, &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Header: "X-License"}}}, inject.CodeForeign},
		{"own-key-on-a-websocket", ask{line: "GET /", fields: "Upgrade: websocket\nConnection: Upgrade\nX_Api_Key: own"}, bearer(), inject.CodeForeign},
		{"own-key-in-the-query-list", ask{line: "GET /?access_token[]=own"}, bearer(), inject.CodeForeign},
		{"own-key-in-the-query-blank", ask{line: "GET /?+access_token=own"}, bearer(), inject.CodeForeign},
		{"own-key-in-the-query-nul", ask{line: "GET /?access_token%00=own"}, bearer(), inject.CodeForeign},
		{"own-key-in-the-query-broken", ask{line: "GET /?access_token%00%zz=own"}, bearer(), inject.CodeForeign},
		{"own-key-in-the-query-header's-name", ask{line: "GET /?x-api-key=own"}, bearer(), inject.CodeForeign},
		{"own-signed-link-old", ask{line: "GET /?AWSAccessKeyId=own&Expires=1&Signature=x"}, bearer(), inject.CodeForeign},
		{"own-signed-link-signature", ask{line: "GET /?Signature=x"}, bearer(), inject.CodeForeign},
		{"own-signed-link-google", ask{line: "GET /?GoogleAccessId=own"}, bearer(), inject.CodeForeign},
		{"own-signed-link-underscores", ask{line: "GET /?x_amz_signature=00"}, bearer(), inject.CodeForeign},
		{"query-own-list", ask{line: "GET /?license[]=own"}, &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Query: "license"}}}, inject.CodeForeign},
		{"query-own-capitals", ask{line: "GET /?license=" + placeholder + "&LICENSE=own"}, &policy.Route{Secrets: []policy.Secret{{Name: "TOKEN", Query: "license"}}}, inject.CodeForeign},
		{"form-list", ask{line: "POST /", fields: formType, body: "t=" + placeholder + "&t[]=own"}, body("t"), inject.CodeMisplaced},
		{"form-own-capitals", ask{line: "POST /", fields: formType, body: "a=1&T=own"}, body("t"), inject.CodeForeign},
		{"form-own-semicolon", ask{line: "POST /", fields: formType, body: "a=1;t=own"}, body("t"), inject.CodeForeign},
		{"a-field's-name-with-hyphens", ask{line: "GET /", fields: strings.ReplaceAll(placeholder, "_", "-") + ": 1"}, bearer(), inject.CodeMisplaced},
		{"range-underscores", ask{line: "GET /", fields: "If_Range: x"}, bearer(), inject.CodeRange},
		{"trace-in-a-field", ask{line: "GET /", fields: "X_HTTP_Method_Override: trace"}, bearer(), inject.CodeTrace},
		{"trace-in-the-query", ask{line: "GET /?_method=TRACE"}, bearer(), inject.CodeTrace},
		{"coding-spelt-otherwise", ask{line: "POST /", fields: "Content_Encoding: gzip", body: "x"}, nil, inject.CodeEncoding},
		{"own-user", ask{line: "GET https://me:own@api.example/"}, bearer(), inject.CodeForeign},
		{"query-own", ask{line: "GET /?key=own"}, query, inject.CodeForeign},
		{"query-twice", ask{line: "GET /?key=" + placeholder + "&key=" + placeholder}, query, inject.CodeMisplaced},
		{"query-and-more", ask{line: "GET /?key=" + placeholder + "x"}, query, inject.CodeMisplaced},
		{"query-authorization", ask{line: "GET /?key=" + placeholder, fields: "Authorization: Bearer own"}, query, inject.CodeForeign},
		{"json-twice", ask{line: "POST /", fields: jsonType, body: `{"t":"` + placeholder + `","t":"x"}`}, body("/t"), inject.CodeMisplaced},
		{"json-twice-in-capitals", ask{line: "POST /", fields: jsonType, body: `{"t":"` + placeholder + `","T":"x"}`}, body("/t"), inject.CodeMisplaced},
		{"json-elsewhere-too", ask{line: "POST /", fields: jsonType, body: `{"t":"` + placeholder + `","u":"` + placeholder + `"}`}, body("/t"), inject.CodeMisplaced},
		{"json-own", ask{line: "POST /", fields: jsonType, body: `{"t":"own"}`}, body("/t"), inject.CodeForeign},
		{"json-broken", ask{line: "POST /", fields: jsonType, body: `{"t":`}, body("/t"), "bad_request"},
		{"json-two-values", ask{line: "POST /", fields: jsonType, body: `{} {}`}, body("/t"), "bad_request"},
		{"json-large", ask{line: "POST /", fields: jsonType, body: `"` + strings.Repeat("x", 1<<20) + `"`}, body("/t"), inject.CodeLimit},
		{"form-own", ask{line: "POST /", fields: formType, body: "t=own"}, body("t"), inject.CodeForeign},
		{"form-twice", ask{line: "POST /", fields: formType, body: "t=" + placeholder + "&%74=x"}, body("t"), inject.CodeMisplaced},
		{"form-sent-as-text", ask{line: "POST /", fields: "Content-Type: text/plain", body: "t=" + placeholder}, body("t"), inject.CodeMisplaced},
		{"range", ask{line: "GET /", fields: "Range: bytes=0-1"}, bearer(), inject.CodeRange},
		{"if-range", ask{line: "GET /", fields: "If-Range: x"}, bearer(), inject.CodeRange},
		{"trace", ask{line: "TRACE /"}, bearer(), inject.CodeTrace},
		{"no-value", ask{line: "GET /"}, named("GONE"), inject.CodeUnavailable},
		{"short-value", ask{line: "GET /"}, named("SHORT"), inject.CodeUnavailable},
		{"a-value-of-lines", ask{line: "GET /"}, named("LINES"), inject.CodeUnavailable},
		{"unknown-coding", ask{line: "POST /", fields: "Content-Encoding: rot13", body: "cynprubyqre"}, bearer(), inject.CodeEncoding},
		{"compressed-messages", ask{line: "POST /", fields: "Grpc-Encoding: gzip", body: "x"}, nil, inject.CodeEncoding},
		{"not-what-it-says", ask{line: "POST /", fields: "Content-Encoding: gzip", body: "x"}, nil, inject.CodeEncoding},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.ask.request(t)
			x, why := newGuard().Request(t.Context(), r, tt.route)
			if why == nil || why.Code != tt.want {
				t.Fatalf("refusal = %v, want %s", why, tt.want)
			}
			if x.Refusal() != why || why.Status < 400 {
				t.Errorf("the exchange has %v; status %d", x.Refusal(), why.Status)
			}
			for _, tells := range []string{value, placeholder, placeholder2} {
				if strings.Contains(why.Error()+why.Hint, tells) {
					t.Errorf("the refusal tells %q: %s", tells, why)
				}
			}
			if got := r.Header.Get("Authorization"); strings.Contains(got, value) {
				t.Error("a refused request holds the value")
			}
		})
	}
}

// TestGuestCredentialsElsewhere is the negative control of the refusals of
// foreign credentials.
func TestGuestCredentialsElsewhere(t *testing.T) {
	a := ask{line: "GET https://me:own@api.example/?access_token=own&access_token[]=own&Signature=own", fields: "Authorization: Bearer own\nX-Api-Key: own\nRange: bytes=0-1\nX_Api_Key: own\nDPoP: own\nX_HTTP_Method_Override: TRACE"}
	for _, route := range []*policy.Route{nil, {}, {Secrets: nil, Auth: policy.AuthGuest}} {
		if _, why := newGuard().Request(t.Context(), a.request(t), route); why != nil {
			t.Errorf("refused without a secret on the route: %v", why)
		}
	}
}

func TestSetReplacesPlaceholders(t *testing.T) {
	g := newGuard()
	a := ask{line: "GET /?q=" + placeholder}
	g.Set(map[string]string{"OTHER": placeholder2})
	if _, why := g.Request(t.Context(), a.request(t), nil); why != nil {
		t.Errorf("refused for what is no placeholder any more: %v", why)
	}
	g.Set(map[string]string{"TOKEN": placeholder})
	if _, why := g.Request(t.Context(), a.request(t), nil); why == nil {
		t.Error("a placeholder went through")
	}
}

func TestNewPlaceholder(t *testing.T) {
	seen := map[string]bool{}
	source := bytes.NewReader(bytes.Repeat([]byte{0, 1, 250, 255, 35, 36, 200, 77, 78, 99}, 1000))
	for _, name := range []string{"TOKEN", "_", strings.Repeat("LONG", 32), "GITHUB_TOKEN"} {
		p, err := inject.NewPlaceholder(name, source)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p, inject.PlaceholderPrefix) || strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || len(p) > 80 || seen[p] {
			t.Errorf("the placeholder of %s is %q", name, p)
		}
		seen[p] = true
	}
	if _, err := inject.NewPlaceholder("A", strings.NewReader("few")); err == nil {
		t.Error("a placeholder was made without randomness")
	}
}

// TestEndToEnd has a server see the value where the guest sent a placeholder.
func TestEndToEnd(t *testing.T) {
	seen := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
	}))
	defer srv.Close()
	r := ask{line: "GET " + srv.URL, fields: "Authorization: Bearer " + placeholder}.request(t)
	g := newGuard()
	x, why := g.Request(t.Context(), r, bearer())
	if why != nil {
		t.Fatal(why)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if why := g.Response(resp, x); why != nil {
		t.Fatal(why)
	}
	if got := <-seen; got != "Bearer "+value {
		t.Errorf("the server saw %q", got)
	}
}

func FuzzFindJSON(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b/c" : "x"}], "a":2}`), "/a/1/b~1c")
	f.Add([]byte(`["\u0061", {"": null}]`), "/1/")
	f.Add([]byte(`{"t":"x"}`), "/t")
	f.Fuzz(func(t *testing.T, text []byte, pointer string) {
		if !strings.HasPrefix(pointer, "/") {
			return
		}
		spots, err := inject.FindJSON(text, pointer)
		if err != nil {
			return
		}
		for _, s := range spots {
			if !validJSON(text[s[0]:s[1]]) {
				t.Fatalf("%q leads to %q in %q", pointer, text[s[0]:s[1]], text)
			}
			put := inject.JSONText(value)
			changed := append(append(bytes.Clone(text[:s[0]]), put...), text[s[1]:]...)
			if !validJSON(changed) {
				t.Fatalf("%q became %q", text, changed)
			}
		}
	})
}
