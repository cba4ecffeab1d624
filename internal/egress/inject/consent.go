package inject

import (
	"context"
	"net/http"
)

// consentKey is where a context has whom to ask before a secret goes out.
type consentKey struct{}

// WithConsent has Request ask before it puts a secret in whose place in the policy
// says so: once for each, and only for those that go into the request.
func WithConsent(ctx context.Context, ask func(secret string) *Refusal) context.Context {
	return context.WithValue(ctx, consentKey{}, ask)
}

// consent asks for the secrets that are to go in. Where nobody is there to be asked,
// the answer is no.
func (rw *rewrite) consent(puts []put) *Refusal {
	asked := map[string]bool{}
	for _, u := range puts {
		if !u.secret.Ask || asked[u.secret.Name] {
			continue
		}
		asked[u.secret.Name] = true
		ask, ok := rw.ctx.Value(consentKey{}).(func(string) *Refusal)
		if !ok {
			return &Refusal{Status: http.StatusForbidden, Code: "approval_denied", Reason: "nobody can be asked whether " + u.secret.Name + " may go out"}
		}
		if why := ask(u.secret.Name); why != nil {
			return why
		}
	}
	return nil
}
