package field_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

func TestHeader(t *testing.T) {
	tests := []struct {
		use   field.Use
		names string
	}{
		{field.Method, "X-HTTP-Method-Override X_HTTP_Method_Override x.http.method.override X-Http-Method X-Method-Override " +
			"X-Original-Method X_Forwarded_Method _method"},
		{field.Path, "X-Original-URL X_Original_URL X-Rewrite-Url X_REWRITE_URL X-Forwarded-Uri X-Override-URL X~Original~Url"},
		{field.Credential, "Authorization Proxy_Authorization X-Api-Key X_Api_Key Api_Key apikey Private-Token Private_Token Token Jwt DPoP " +
			"X-Jwt X_Auth_Token X-Amz-Security-Token X_Amz_Security_Token X-Goog-Api-Key X-Anything_Secret Signature My.Access.Token"},
		{field.Read, "Content_Type Content-Type Transfer_Encoding Sec_WebSocket_Extensions If_Range Accept_Encoding Keep.Alive"},
		{0, "Accept User-Agent X-Csrf-Token X_Csrf_Token Idempotency-Key Sec-Fetch-Mode X-Request-Id X-Amz-Date X-Goog-User-Project Etag - X"},
	}
	for _, tt := range tests {
		for name := range strings.FieldsSeq(tt.names) {
			if got := field.Header(name); got&tt.use != tt.use || tt.use == 0 && got != 0 {
				t.Errorf("%s: got %b, want %b", name, got, tt.use)
			}
		}
	}
}

func TestParameter(t *testing.T) {
	tests := []struct {
		use   field.Use
		names string
	}{
		{field.Method, "_method _Method %5Fmethod _method[] +_method %09_method _method%00x .method %u005fmethod X-HTTP-Method-Override"},
		{field.Word, "method Method"},
		{field.Path, "_url _route"},
		{field.Credential, "access_token access_token[] +access_token accessToken access-token access.token access[token user[token] " +
			"x-api-key X_Api_Key Signature AWSAccessKeyId GoogleAccessId X-Amz-Signature X_Amz_Credential x-goog-signature sig key " +
			"access_token%00 %00access_token [access_token] Key-Pair-Id to%E2%84%AAen"},
		{field.FormCredential, "access_token api_key token private_token AWSAccessKeyId"},
		{0, "page_token pageToken next_token url path q continuation-token max_tokens keyboard X-Original-URL signal"},
	}
	for _, tt := range tests {
		for name := range strings.FieldsSeq(tt.names) {
			if got := field.Parameter(name); got&tt.use != tt.use || tt.use == 0 && got != 0 {
				t.Errorf("%s: got %b, want %b", name, got, tt.use)
			}
		}
	}
	for _, name := range []string{"key", "password", "secret", "user[token]", "refresh_token"} {
		if field.Parameter(name)&field.FormCredential != 0 {
			t.Errorf("%s is data in a form", name)
		}
	}
}

// TestUsualNames has the names that clients and servers agree on for
// credentials, in fields and in queries, and some that only look so.
func TestUsualNames(t *testing.T) {
	for _, name := range strings.Fields("Api-Key Apikey Authentication Authorization Circle-Token Dd-Api-Key Dd-Application-Key " +
		"Deploy-Token Job-Token Ocp-Apim-Subscription-Key Private-Token Proxy-Authorization X-Access-Token X-Amz-Security-Token " +
		"X-Api-Key X-Api-Token X-Apikey X-Auth X-Auth-Key X-Auth-Token X-Authorization X-Functions-Key X-Goog-Api-Key X-Rapidapi-Key " +
		"X-Session-Id X-Subscription-Token X-Vault-Token") {
		if field.Header(name)&field.Credential == 0 {
			t.Errorf("%s holds no credential", name)
		}
	}
	for _, name := range strings.Fields("access_key access_token accesskey accesstoken api-key api_key api_token apikey apitoken auth auth_key " +
		"auth_token authorization authtoken bearer_token client_secret id_token job_token jwt key oauth_token passwd password private_token " +
		"refresh_token secret session_token sig subscription-key token x-amz-credential x-amz-security-token x-amz-signature " +
		"x-goog-credential x-goog-signature") {
		if field.Parameter(name)&field.Credential == 0 {
			t.Errorf("the parameter %s holds no credential", name)
		}
	}
	for _, name := range strings.Fields("Mcp-Session-Id Idempotency-Key Sec-WebSocket-Key Anthropic-Version Openai-Organization Grpc-Timeout " +
		"X-Stainless-Lang X-Goog-Api-Client Git-Protocol Npm-Otp If-None-Match Traceparent sessionId session_id service scope sync_token sha sort cursor") {
		if use := field.Header(name) | field.Parameter(name); use&^field.Read != 0 {
			t.Errorf("%s: got %b", name, use)
		}
	}
}

func TestMisspelt(t *testing.T) {
	for name, want := range map[string]bool{
		"Content_Length": true, "content.type": true, "Accept_Encoding": true, "Proxy_Connection": true,
		"Content-Length": false, "CONTENT-TYPE": false, "X_Api_Key": false, "Content_Language": false,
	} {
		if got := field.Misspelt(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestParameters(t *testing.T) {
	var got []string
	for name, value := range field.Parameters("a=1&&b;c=%20=&amp;d=2") {
		got = append(got, name+":"+value)
	}
	if want := []string{"a:1", "b:", "c:%20=", "amp:", "d:2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// servers are what some make of a parameter's name.
var servers = map[string]func(decoded string) string{
	"as-it-is":         func(s string) string { return s },
	"ignoring-case":    strings.ToUpper,
	"C-text":           func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s },
	"trimmed":          strings.TrimSpace,
	"hyphens-are-none": func(s string) string { return strings.ReplaceAll(s, "-", "_") },
	"Rack": func(s string) string {
		return regexp.MustCompile(`\A[\[\]]*([^\[\]]+)\]*`).FindString(s)
	},
	"PHP": func(s string) string {
		s, _, _ = strings.Cut(strings.TrimLeft(s, " "), "\x00")
		if i := strings.IndexByte(s, '['); i > 0 && strings.Contains(s[i:], "]") {
			s = s[:i]
		}
		return strings.NewReplacer(" ", "_", ".", "_", "[", "_").Replace(s)
	},
}

// FuzzParameter: what some server reads as a credential or as a method's name
// is seen to be one, and parts and folds are what they say.
func FuzzParameter(f *testing.F) {
	for _, s := range []string{"access_token=x", "+access%5ftoken[]=1", "a;_method=DELETE", "access[token=1", "%00token%00=", "a%zz&.method=%u0041", "[token]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		rest := query
		for name, value := range field.Parameters(query) {
			i := strings.Index(rest, name)
			if i < 0 || strings.ContainsAny(name+value, "&;") || strings.Contains(name, "=") {
				t.Fatalf("%q has %q with %q", query, name, value)
			}
			rest = rest[i+len(name):]
			for server, read := range servers {
				got := read(field.Decode(name))
				for _, one := range []string{"access_token", "token", "private_token", "x-amz-signature"} {
					if got == one && field.Parameter(name)&field.Credential == 0 {
						t.Fatalf("%s reads %q as %q", server, name, got)
					}
				}
				if got == "_method" && field.Parameter(name)&field.Method == 0 {
					t.Fatalf("%s reads %q as %q", server, name, got)
				}
			}
			for _, r := range field.Readings(name) {
				if again := field.Fold(r); again != r {
					t.Fatalf("%q folds to %q, and that to %q", name, r, again)
				}
			}
		}
	})
}
