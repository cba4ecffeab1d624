package langbot_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Connections of each kind are bounded, those that only wait too; one that ends
// makes room for another.
func TestCrowd(t *testing.T) {
	s, _ := relaying(t) // which is a host
	for _, tt := range []struct {
		name, path string
		most       int
	}{
		{"hosts", "/rpc/ws", 32 - 1},
		{"relays", relayPath, 256},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var open []*websocket.Conn
			for range tt.most {
				c, _, err := s.dial(t, tt.path, api.HeaderInstance, "i")
				if err != nil {
					t.Fatalf("after %d: %v", len(open), err)
				}
				open = append(open, c)
			}
			_, resp, err := s.dial(t, tt.path, api.HeaderInstance, "i")
			if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
				t.Fatalf("one more: %v, %+v", err, resp)
			}
			_ = open[0].Close(websocket.StatusNormalClosure, "")
			for t.Context().Err() == nil {
				if c, _, err := s.dial(t, tt.path, api.HeaderInstance, "i"); err == nil {
					open = append(open, c)
					break
				}
			}
			for _, c := range open {
				_ = c.CloseNow()
			}
		})
	}
}

// Who lacks the token is told that the runtime is there, and nothing of what
// goes on in it.
func TestHealthOfOthers(t *testing.T) {
	token := strings.Repeat("t", rpc.MinToken)
	s := serve(t, func(o *langbot.Options) { o.Token = token })
	for _, path := range []string{"/healthz", "/readyz"} {
		for say, want := range map[string]int{"": 0, "x" + token: 0, token: 3} {
			req, err := http.NewRequest("GET", s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(api.HeaderControlToken, say)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Resources map[string]int `json:"resources"`
			}
			err = json.NewDecoder(resp.Body).Decode(&got)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || len(got.Resources) != want {
				t.Errorf("%s with the token %q = %d %v, %v", path, say, resp.StatusCode, got, err)
			}
		}
	}
}

// Where there is no token, another user of the machine is nobody; with one, who
// has it is asked nothing else.
func TestOtherUsers(t *testing.T) {
	var others bool
	users := func(*http.Request) error {
		if others {
			return sandbox.Errorf(sandbox.Denied, "user 1001 is another one")
		}
		return nil
	}
	token := strings.Repeat("t", rpc.MinToken)
	for _, with := range []string{"", token} {
		s := serve(t, func(o *langbot.Options) { o.Token, o.Trusted = with, users })
		others = false
		headers := []string{api.HeaderInstance, "i"}
		if with != "" {
			headers = append(headers, api.HeaderControlToken, with)
		}
		w := s.connect(t, headers...)
		w.call("box_create_session", `{"session_id":"s"}`).fields(t)
		w.call("box_start_managed_process", `{"session_id":"s","spec":{"command":"cat"}}`).fields(t)
		others = true
		_, resp, err := s.dial(t, "/rpc/ws", headers...)
		if refused := err != nil && resp != nil && resp.StatusCode == http.StatusForbidden; refused != (with == "") {
			t.Errorf("a host, with the token %q: %v", with, err)
		}
		_, resp, _ = s.dial(t, relayPath, headers...)
		if refused := resp != nil && resp.StatusCode == http.StatusForbidden; refused != (with == "") {
			t.Errorf("a relay, with the token %q: %+v", with, resp)
		}
	}
}
