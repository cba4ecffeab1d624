package boxservice_test

import (
	"net/url"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// FuzzEndpoint wants of whatever is configured either an error or a place that
// can be dialled, and never one with a user or a path in it.
func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"ws://pod:5410", "wss://[::1]", "pod:1", "https://a.b/", "ws://u:p@h", "ws://h/x?y#z", "://", "ws://h:port", "ws://%41", "::", "ws://a:0", "[fe80::1%25eth0]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		c, err := boxservice.NewConnector(boxservice.Options{Endpoint: endpoint})
		if err != nil || strings.TrimSpace(endpoint) == "" {
			return
		}
		defer c.Close()
		u, err := url.Parse(c.RelayURL())
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Port() == "" || u.User != nil || u.Path != "" || !c.UsesWebSocket() {
			t.Errorf("%q became %q: %v", endpoint, c.RelayURL(), err)
		}
	})
}

// FuzzMessage wants of whatever a runtime answers an error of a class that
// there is.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "BoxError: x", "BoxSessionNotFoundError: session x not found", "A: BoxAdmissionError: b", "BoxValidationError:", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, message string) {
		err := boxservice.FromMessage(message)
		if err == nil || !strings.HasPrefix(boxservice.Class(err), "Box") {
			t.Fatalf("%q became %v of class %q", message, err, boxservice.Class(err))
		}
		if _, text, ok := strings.Cut(message, ": "); ok && strings.HasPrefix(message, api.ClassValidation+": ") && err.Error() != text {
			t.Errorf("%q became %q", message, err)
		}
	})
}
