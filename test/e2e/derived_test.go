package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What a key was given to let others in with ends with that key: the token of a volume, and
// the link by which files for a template are sent.
func TestTokensEndWithTheirKey(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	url := h.serve(newE2BKey())
	ask := func(method, path, header, secret, body string) (status int, text string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if secret != "" {
			req.Header.Set(header, secret)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	type given struct {
		VolumeID, Token, TemplateID, URL string
	}
	give := func(secret, method, path, body string) (g given) {
		t.Helper()
		status, text := ask(method, url+path, "X-API-KEY", secret, body)
		if err := json.Unmarshal([]byte(text), &g); status >= 300 || err != nil {
			t.Fatalf("%s %s = %d %s (%v)", method, path, status, text, err)
		}
		return g
	}

	first := strings.TrimSpace(h.ok("key", "add", "--team", "bots", "--host-image", "first"))
	second := strings.TrimSpace(h.ok("key", "add", "--team", "bots", "--host-image", "second"))
	vol := give(first, "POST", "/volumes", `{"name":"data"}`)
	content := url + "/volumecontent/" + vol.VolumeID + "/dir?path=/"
	template := give(first, "POST", "/v3/templates", `{"name":"web"}`)
	link := func(secret string) string {
		return give(secret, "GET", "/templates/"+template.TemplateID+"/files/"+strings.Repeat("ab", 32), "").URL
	}
	waits, others := link(first), link(second)
	if status, text := ask("GET", content, "Authorization", "Bearer "+vol.Token, ""); status != http.StatusOK {
		t.Fatalf("with the key there: %d %s", status, text)
	}

	var keys []struct{ ID, Name string }
	if err := json.Unmarshal([]byte(h.ok("key", "ls", "--json")), &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Name == "first" {
			h.ok("key", "rm", k.ID)
		}
	}
	if status, text := ask("GET", content, "Authorization", "Bearer "+vol.Token, ""); status != http.StatusUnauthorized {
		t.Errorf("a volume by the token of a key that is gone: %d %s", status, text)
	}
	if status, text := ask("PUT", waits, "", "", "x"); status != http.StatusNotFound {
		t.Errorf("an upload by the link of a key that is gone: %d %s", status, text)
	}
	again := give(second, "GET", "/volumes/"+vol.VolumeID, "")
	if status, text := ask("GET", content, "Authorization", "Bearer "+again.Token, ""); status != http.StatusOK {
		t.Errorf("by the token of a key that is there: %d %s", status, text)
	}
	if status, text := ask("PUT", others, "", "", "x"); status == http.StatusNotFound {
		t.Errorf("an upload by the link of a key that is there: %d %s", status, text)
	}
}
