package inject

import (
	"net/http"
	"slices"
	"strings"
)

// credentialHeaders hold credentials, by what their users call them.
var credentialHeaders = []string{
	"Api-Key", "Apikey", "Authentication", "Authorization", "Circle-Token", "Dd-Api-Key", "Dd-Application-Key",
	"Deploy-Token", "Job-Token", "Ocp-Apim-Subscription-Key", "Private-Token", "Proxy-Authorization",
	"X-Access-Token", "X-Amz-Security-Token", "X-Api-Key", "X-Api-Token", "X-Apikey", "X-Auth", "X-Auth-Key",
	"X-Auth-Token", "X-Authorization", "X-Functions-Key", "X-Goog-Api-Key", "X-Rapidapi-Key",
	"X-Session-Id", "X-Subscription-Token", "X-Vault-Token",
}

// credentialEndings are those of other fields for credentials, and
// harmlessEndings those of fields that only look so.
var (
	credentialEndings = []string{
		"-token", "-api-key", "-apikey", "-access-key", "-auth-key", "-secret", "-password", "-authorization", "-credential", "-credentials",
	}
	harmlessEndings = []string{"-csrf-token", "-xsrf-token", "-continuation-token", "-page-token", "-next-token"}
)

// credentialHeader reports whether a field of that name, in canonical form, is
// taken to hold a credential. Cookie is not among them: it is left out of
// requests on routes with a secret, since clients return cookies unasked.
func credentialHeader(name string) bool {
	if slices.Contains(credentialHeaders, name) {
		return true
	}
	ends := func(endings []string) bool {
		lower := strings.ToLower(name)
		return slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(lower, e) })
	}
	return ends(credentialEndings) && !ends(harmlessEndings)
}

// credentialParameters hold credentials in queries. The signatures are those
// of links that whoever has them may use.
var credentialParameters = []string{
	"access_key", "access_token", "accesskey", "accesstoken", "api-key", "api_key", "api_token", "apikey", "apitoken",
	"auth", "auth_key", "auth_token", "authorization", "authtoken", "bearer_token", "client_secret",
	"id_token", "job_token", "jwt", "key", "oauth_token", "passwd", "password", "private_token", "refresh_token",
	"secret", "session_token", "sig", "subscription-key", "token",
	"x-amz-credential", "x-amz-security-token", "x-amz-signature", "x-goog-credential", "x-goog-signature",
}

// credentialParameter reports whether a query's parameter of that name is
// taken to hold a credential.
func credentialParameter(name string) bool {
	_, ok := slices.BinarySearch(credentialParameters, strings.ToLower(name))
	return ok
}

// hasValue reports whether any of a field's values is not empty.
func hasValue(values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) != "" })
}

// partial are fields that ask for a part of an answer.
var partial = []string{"Range", "If-Range", "Request-Range"}

// refuseMethod refuses what would get a value past the search of the answer.
func refuseMethod(r *http.Request) *Refusal {
	switch strings.ToUpper(r.Method) {
	case "TRACE", "TRACK", "DEBUG":
		return &Refusal{
			Code: CodeTrace, Status: http.StatusForbidden,
			Reason: "requests that ask for their own headers back are refused where the policy puts a secret in",
		}
	}
	for _, name := range partial {
		if len(r.Header.Values(name)) > 0 {
			return &Refusal{
				Code: CodeRange, Status: http.StatusForbidden,
				Reason: name + " is refused where the policy puts a secret in: a part of an answer can't be searched for it",
				Hint:   "ask for the whole",
			}
		}
	}
	return nil
}
