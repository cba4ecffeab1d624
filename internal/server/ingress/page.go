package ingress

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// targetBody is an error on the way to a sandbox, as E2B's clients read it.
type targetBody struct {
	SandboxID string `json:"sandboxId,omitempty"`
	Message   string `json:"message"`
	Port      int    `json:"port,omitempty"`
	Code      int    `json:"code"`
}

var errorPage = template.Must(template.New("error").Parse(`<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Code}} {{.Title}}</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto; padding: 0 1rem; color: #222; background: #fff }
h1 { font-size: 1.4rem }
code { background: #eee; padding: .1em .3em; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #111 } code { background: #333 } }
</style>
<h1>{{.Title}}</h1>
<p>{{.Message}}</p>
{{with .Hint}}<p>Next: {{.}}</p>
{{end}}{{with .SandboxID}}<p>Sandbox <code>{{.}}</code>{{with $.Port}}, port <code>{{.}}</code>{{end}}</p>
{{end}}<p>This page is Carboy's. The sandbox did not answer it.</p>
</html>
`))

// targetStatus is E2B's status of each kind of error on the way to a sandbox:
// its SDKs take 502 to mean that the sandbox is not there or does not run.
func targetStatus(kind sandbox.Kind) int {
	switch kind {
	case sandbox.NotFound, sandbox.Conflict, sandbox.Unavailable:
		return http.StatusBadGateway
	}
	return wire.Status(kind)
}

// failTo answers requests for t that go wrong: a browser that was sent here
// gets a page, everybody else JSON.
func failTo(r *http.Request, t target) failer {
	return func(w http.ResponseWriter, err error) {
		failAs(w, r, t, targetStatus(sandbox.KindOf(err)), err)
	}
}

// errNoSandbox is E2B's answer for a port of a sandbox that is not there, which
// clients know by its text.
var errNoSandbox = sandbox.Errorf(sandbox.NotFound, "The sandbox was not found")

// refuseGuest answers who may not speak to a guest agent, as E2B's agent does: who
// has no token learns from it of no sandbox.
func refuseGuest(w http.ResponseWriter, r *http.Request, err error) {
	h := w.Header()
	h.Set(api.HeaderError, string(sandbox.Denied))
	endUnread(h, r)
	letPagesRead(h, r.Header)
	wire.JSON(w, http.StatusUnauthorized, targetBody{Code: http.StatusUnauthorized, Message: err.Error()})
}

// endUnread ends the connection of a request whose body nobody reads: a client
// that was not told would send its next request there.
func endUnread(h http.Header, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		h.Set("Connection", "close")
	}
}

func failAs(w http.ResponseWriter, r *http.Request, t target, status int, err error) {
	wire.Failed(w, err)
	e := wire.Describe(err)
	h := w.Header()
	h.Set(api.HeaderError, e.Code)
	endUnread(h, r)
	wire.RetryAfter(w, err)
	letPagesRead(h, r.Header)
	body := targetBody{SandboxID: t.id, Message: e.Message, Port: t.port, Code: status}
	h.Add("Vary", "Accept, Sec-Fetch-Mode")
	if !wantsPage(r.Header) {
		wire.JSON(w, status, body)
		return
	}
	var page bytes.Buffer
	_ = errorPage.Execute(&page, struct { // all of its fields are text
		targetBody
		Title, Hint string
	}{body, http.StatusText(status), e.Hint})
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes())
}

// wantsPage reports whether somebody looks at the answer: a script says by its
// own means, or by what it accepts, that it does not.
func wantsPage(h http.Header) bool {
	if mode := h.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate"
	}
	return strings.Contains(strings.ToLower(h.Get("Accept")), "text/html")
}
