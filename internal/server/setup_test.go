package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestNoSuchSkill: a skill that is not installed is told of before a sandbox is made.
func TestNoSuchSkill(t *testing.T) {
	w := newWorld(t)
	w.Options.HasSkill = func(_ context.Context, _, name string) error {
		if name == "review" {
			return nil
		}
		return sandbox.Errorf(sandbox.NotFound, "Skill %q not found", name)
	}
	w.Restart()
	w.Wall.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		t.Errorf("the wall is asked for %v", op)
		return nil
	})
	s := api.SetUp{
		Agent:      api.Agent{Name: "fixer", Bottle: "b", Provider: "fake"},
		Definition: "program = \"fake\"\n[config]\ndir = \".fake\"\nskills = \"skills\"\n[access]\nnone = true\n",
		Skills:     []string{"review", "reviw"},
	}
	body, err := json.Marshal(api.CreateRequest{SetUp: &s})
	if err != nil {
		t.Fatal(err)
	}
	resp, said := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: string(body)})
	var e api.Error
	if err := json.Unmarshal([]byte(said), &e); err != nil || resp.StatusCode != http.StatusBadRequest ||
		e.Message != `the skill "reviw" is not installed` || !strings.HasPrefix(e.Hint, "carboy session skill ls ") {
		t.Errorf("got %d %s", resp.StatusCode, said)
	}
	if _, list := w.do(t, request{method: "GET", path: "/v1/sandboxes"}); count(t, list) != 0 {
		t.Errorf("left: %s", list)
	}
	w.Wall.SetHook(nil)
}
