package wire_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// null is no object that says nothing: whoever sends it has lost what they meant to say.
func TestDecodeNull(t *testing.T) {
	for _, body := range []string{"null", " null\n"} {
		for _, optional := range []bool{false, true} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			var req api.CreateRequest
			err := wire.Decode(r, &req, optional)
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Kind != sandbox.Invalid || e.Msg != "body: it is null" || !strings.Contains(e.Hint, "{}") {
				t.Errorf("%q, optional %v: %v", body, optional, err)
			}
		}
	}
}

func TestError(t *testing.T) {
	secret := errors.New("open /root/secret: permission denied")
	tests := []struct {
		name   string
		err    error
		status int
		want   api.Error
	}{
		{"invalid", sandbox.Errorf(sandbox.Invalid, "m").WithHint("h"), 400, api.Error{Code: "invalid", Message: "m", Hint: "h"}},
		{"not-found", sandbox.Errorf(sandbox.NotFound, "m"), 404, api.Error{Code: "not_found", Message: "m"}},
		{"conflict", sandbox.Errorf(sandbox.Conflict, "m"), 409, api.Error{Code: "conflict", Message: "m"}},
		{"denied", sandbox.Errorf(sandbox.Denied, "m"), 403, api.Error{Code: "denied", Message: "m"}},
		{"unsupported", sandbox.Errorf(sandbox.Unsupported, "m"), 501, api.Error{Code: "unsupported", Message: "m"}},
		{"exhausted", sandbox.Errorf(sandbox.Exhausted, "m"), 429, api.Error{Code: "exhausted", Message: "m"}},
		{"unavailable", sandbox.Errorf(sandbox.Unavailable, "m"), 503, api.Error{Code: "unavailable", Message: "m"}},
		{"internal", sandbox.Errorf(sandbox.Internal, "m"), 500, api.Error{Code: "internal", Message: "m"}},
		{"cause-stays-inside", &sandbox.Error{Kind: sandbox.Denied, Msg: "m", Err: secret}, 403, api.Error{Code: "denied", Message: "m"}},
		{"not-ours", secret, 500, api.Error{Code: "internal", Message: "internal error", Hint: sandbox.LogHint}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			wire.Error(rec, tt.err)
			var got api.Error
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if rec.Code != tt.status {
				t.Errorf("status = %d, want %d", rec.Code, tt.status)
			}
			if got, want := rec.Header().Get(api.HeaderError), tt.want.Code; got != want {
				t.Errorf("%s = %q, want %q", api.HeaderError, got, want)
			}
		})
	}
}

type body struct {
	Name string            `json:"name"`
	N    int               `json:"n"`
	M    map[string]string `json:"m"`
}

func TestDecode(t *testing.T) {
	tests := []struct {
		name, ctype, body string
		optional          bool
		want              string // of the error; "" for none
	}{
		{"ok", "application/json", `{"name":"a","n":1}`, false, ""},
		{"charset", "application/json; charset=utf-8", `{}`, false, ""},
		{"empty", "application/json", "", false, "not JSON"},
		{"empty-optional", "", " ", true, ""},
		{"form", "application/x-www-form-urlencoded", `{}`, false, `Content-Type is "application/x-www-form-urlencoded", not application/json`},
		{"text-plain", "text/plain", `{}`, true, `Content-Type is "text/plain", not application/json`},
		{"no-type", "", `{}`, false, "without a Content-Type, and has to be application/json"},
		{"unknown", "application/json", `{"nmae":"a"}`, false, `no field "nmae"`},
		{"twice", "application/json", `{"n":1,"n":2}`, false, `"n" is there twice`},
		{"twice-below", "application/json", `{"m":{"a":"1","a":"2"}}`, false, `"a" is there twice`},
		{"two-values", "application/json", `{}{}`, false, "more than one"},
		{"trailing", "application/json", `{}x`, false, "more than one"},
		{"cut", "application/json", `{"name":`, false, "not JSON"},
		{"wrong-type", "application/json", `{"n":"hunter2"}`, false, `"n" can't be a JSON string`},
		{"fraction", "application/json", `{"n":31.337}`, false, `"n" has to be a whole number`},
		{"array", "application/json", `[]`, false, "can't be a JSON array"},
		{"deep", "application/json", strings.Repeat("[", 100), false, "deeper"},
		{"large", "application/json", `{"name":"` + strings.Repeat("x", wire.MaxBody) + `"}`, false, "larger"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.ctype)
			var b body
			err := wire.Decode(r, &b, tt.optional)
			if tt.want == "" {
				if err != nil {
					t.Errorf("Decode = %v, want nil", err)
				}
				return
			}
			if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Decode = %v, want an invalid with %q", err, tt.want)
			}
			if e := (*sandbox.Error)(nil); strings.Contains(tt.want, "Content-Type") && (!errors.As(err, &e) || e.Hint != "send the header Content-Type: application/json") {
				t.Errorf("Decode = %#v, want a hint with the header", err)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "31.337")) {
				t.Errorf("the error repeats a value: %v", err)
			}
		})
	}
}

func FuzzDecodeBytes(f *testing.F) {
	for _, s := range []string{`{"name":"a","n":1,"m":{"k":"v"}}`, `{"n":1,"n":2}`, `[[[`, `null`, "\x00", `{"a":{"a":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v api.CreateRequest
		if err := wire.DecodeBytes(b, &v); err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("DecodeBytes = %v, want an invalid", err)
			}
			return
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var again api.CreateRequest
		if err := wire.DecodeBytes(out, &again); err != nil {
			t.Errorf("what was accepted is refused when written again: %v", err)
		}
	})
}
