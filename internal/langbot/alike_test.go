package langbot_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Two people whose IDs come to the same once they are cleaned share nothing.
func TestIDsThatAreCleanedAlike(t *testing.T) {
	s := serve(t, nil)
	w := s.connect(t, api.HeaderInstance, "i")
	ids := []string{"person_-", "person_张三", "person_李四", "person_"}
	for _, id := range ids {
		one := w.about("box_exec", fmt.Sprintf(`{"session_id":%q,"cmd":"id"}`, id), in("w", 1)).fields(t)
		if one["session_id"] != id {
			t.Errorf("a host's %q is called %v", id, one["session_id"])
		}
	}
	var got []string
	for _, one := range w.about("box_get_sessions", `{}`, in("w", 1)).fields(t)["sessions"].([]any) {
		got = append(got, one.(map[string]any)["session_id"].(string))
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
		t.Errorf("the sessions are %q", got)
	}
	w.about("box_delete_session", `{"session_id":"person_张三"}`, in("w", 1)).fields(t)
	w.about("box_get_session", `{"session_id":"person_李四"}`, in("w", 1)).fields(t)
	gone := w.about("box_get_session", `{"session_id":"person_张三"}`, in("w", 1))
	if gone.Message != "BoxSessionNotFoundError: session person_张三 not found (carboy session ls)" {
		t.Errorf("a host is told of %q", gone.Message)
	}
	// A text that looks like a key is an ID like any other.
	w.about("box_get_session", `{"session_id":"person_~cGVyc29uX-adjuWbmw"}`, in("w", 1)).want(t, "BoxSessionNotFoundError: ")
	for _, bad := range []string{`\ud800`, `\udfff`, `a\u0000b`, `a\nb`} {
		w.about("box_exec", `{"session_id":"x`+bad+`","cmd":"id"}`, in("w", 1)).want(t, "BoxValidationError: session_id ")
	}
}

// A relay's path is of those who made it, and of nobody else whose ID comes to
// the same.
func TestRelaysOfIDsThatAreCleanedAlike(t *testing.T) {
	reached := make(chan string, 1)
	s := serve(t, func(o *langbot.Options) {
		o.Attach = func(_ context.Context, _ sandbox.Caller, id, _ string, _ bool) (langbot.Attachment, error) {
			reached <- id
			return nil, sandbox.Errorf(sandbox.Conflict, "enough")
		}
	})
	w := s.connect(t, api.HeaderInstance, "i")
	w.about("box_get_sessions", `{}`, in("w", 1)).fields(t)
	begin := func(id string) {
		w.about("box_create_session", fmt.Sprintf(`{"session_id":%q}`, id), in("w", 1)).fields(t)
		w.about("box_start_managed_process", fmt.Sprintf(`{"session_id":%q,"spec":{"command":"cat"}}`, id), in("w", 1)).fields(t)
	}
	about := api.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 1}
	path := "/v1/sessions/" + rpc.KeyPrefix(about) + "a-b/managed-process/ws"
	attach := func(want string) {
		t.Helper()
		_, resp, err := s.dial(t, path, api.HeaderInstance, "i", api.HeaderWorkspace, "w", api.HeaderGeneration, "1")
		got := ""
		if err == nil {
			got = <-reached
		} else if resp == nil || resp.StatusCode != http.StatusBadRequest {
			t.Fatal(err)
		}
		if ns := strings.TrimPrefix(got, rpc.KeyPrefix(about)); ns != want {
			t.Errorf("the relay reached %q, want %q", ns, want)
		}
	}
	attach("")
	begin("a/b")
	w.about("box_create_session", `{"session_id":"a-b"}`, in("w", 1)).fields(t) // which has no process
	attach("a-b~YS9i")
	for _, another := range []string{"a:b", "a-b"} {
		begin(another)
		attach("") // it may be of two
		w.about("box_delete_session", fmt.Sprintf(`{"session_id":%q}`, another), in("w", 1)).fields(t)
	}
}
