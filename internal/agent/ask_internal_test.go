package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Whatever an agent replies is the reply, a refusal of a kind that is its to give, or
// broken off; a part of a reply is never one.
func FuzzReadReply(f *testing.F) {
	whole := `{"shell_id":"s","cwd":"/","cols":1,"rows":2,"state":"running","started_at":1.5,"ended_at":null,"exit_code":null}`
	for i := range whole {
		if err := readReply([]byte(whole[:i]), new(action.Shell)); !errors.Is(err, ErrBroken) {
			f.Fatalf("%q is taken for a reply: %v", whole[:i], err)
		}
	}
	for _, s := range []string{
		whole, whole + "\n", `{"error":"x","kind":"not_found"}`, `{"error":"\u001b[0m"}`, `{"error":null}`, `[]`, `null`, `{"Error":"x"}`, "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var reply action.Shell
		err := readReply([]byte(raw), &reply)
		kind := sandbox.KindOf(err)
		switch {
		case err == nil && !strings.HasPrefix(strings.TrimSpace(raw), "{"):
			t.Errorf("%q is taken for a reply", raw)
		case err == nil || errors.Is(err, ErrBroken):
		case kind == sandbox.Internal || kind == sandbox.Denied:
			t.Errorf("%q is refused as %s", raw, kind)
		case len(err.Error()) > 10*maxReason || strings.ContainsAny(err.Error(), "\x1b\x00\r"):
			t.Errorf("%q tells %q", raw, err)
		}
	})
}
