package inject_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// passing is a model's route: what an agent saw goes to it.
func passing(s ...policy.Secret) *policy.Route {
	return &policy.Route{Placeholders: policy.PlaceholdersPass, Secrets: s}
}

// TestPlaceholdersPass sends what TestRequestRefuses has refused, by a rule
// that lets placeholders through in bodies.
func TestPlaceholdersPass(t *testing.T) {
	const jsonType = "Content-Type: application/json\n"
	said := `{"messages":["TOKEN=` + placeholder + ` OTHER=` + placeholder2 + `"]}`
	key := policy.Secret{Name: "TOKEN", Header: "Authorization"}
	tests := []struct {
		name    string
		request *http.Request
		route   *policy.Route
		want    string
	}{
		{"whole", ask{line: "POST /", fields: jsonType, body: said}.request(t), passing(key), said},
		{"without-a-secret", ask{line: "POST /", fields: jsonType, body: said}.request(t), passing(), said},
		{"streamed", streaming(ask{line: "POST /"}.request(t), said), passing(key), said},
		{"encoded", ask{line: "POST /", fields: "Content-Encoding: gzip", body: encode(t, "gzip", said)}.request(t), passing(key), encode(t, "gzip", said)},
		{"unknown-coding", ask{line: "POST /", fields: "Content-Encoding: rot13", body: said}.request(t), passing(key), said},
		{
			"beside-its-place",
			ask{line: "POST /", fields: jsonType, body: `{"key":"` + placeholder + `","m":"` + placeholder + `"}`}.request(t),
			passing(policy.Secret{Name: "TOKEN", Body: "/key"}),
			`{"key":"` + strings.ReplaceAll(value, `"`, `\"`) + `","m":"` + placeholder + `"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, why := newGuard().Request(t.Context(), tt.request, tt.route)
			if why != nil {
				t.Fatal(why)
			}
			if got := readBody(t, tt.request); got != tt.want || x.Refusal() != nil {
				t.Errorf("%q went on, %v; want %q", got, x.Refusal(), tt.want)
			}
			if len(tt.route.Secrets) > 0 && tt.route.Secrets[0].Header != "" && tt.request.Header.Get("Authorization") != "Bearer "+value {
				t.Error("the secret was not put in")
			}
		})
	}
}

// TestPlaceholdersPassInBodiesAlone has placeholders elsewhere.
func TestPlaceholdersPassInBodiesAlone(t *testing.T) {
	key := policy.Secret{Name: "TOKEN", Header: "Authorization"}
	for name, a := range map[string]ask{
		"path":   {line: "POST /" + placeholder, body: "x"},
		"query":  {line: "POST /?q=" + placeholder, body: "x"},
		"header": {line: "POST /", fields: "X-Note: " + placeholder, body: "x"},
		"name":   {line: "POST /", fields: placeholder + ": x", body: "x"},
		"scheme": {line: "POST /", fields: "Authorization: Bearer x" + placeholder, body: "x"},
	} {
		if _, why := newGuard().Request(t.Context(), a.request(t), passing(key)); why == nil || why.Code != inject.CodeMisplaced {
			t.Errorf("%s: refusal = %v, want %s", name, why, inject.CodeMisplaced)
		}
	}
	for name, route := range map[string]*policy.Route{"placeholder": passing(), "credential": passing(key)} {
		r := streaming(ask{line: "POST /"}.request(t), "x")
		r.Trailer = http.Header{"X-Api-Key": {placeholder}}
		if name == "credential" {
			r.Trailer = http.Header{"X-Api-Key": {"own"}}
		}
		x, why := newGuard().Request(t.Context(), r, route)
		if why == nil {
			_, err := new(bytes.Buffer).ReadFrom(r.Body)
			if why = x.Refusal(); !errors.As(err, &why) {
				t.Errorf("%s in a trailer: %v", name, err)
			}
		}
	}
}

func TestPlaceholdersPassInMessages(t *testing.T) {
	header := http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	said := frame(0x81, []byte("I have "+placeholder), 77)
	for _, route := range []*policy.Route{passing(), nil} {
		g := newGuard()
		x, why := g.Request(t.Context(), ask{line: "GET /", fields: "Upgrade: websocket\nConnection: Upgrade"}.request(t), route)
		if why != nil {
			t.Fatal(why)
		}
		var sent bytes.Buffer
		up, _ := g.Stream(x, header, &sent, strings.NewReader(""))
		_, err := up.Write(said)
		if passed := err == nil && bytes.Equal(sent.Bytes(), said); passed != (route != nil) {
			t.Errorf("route %v: %d bytes went on, %v", route, sent.Len(), err)
		}
	}
}
