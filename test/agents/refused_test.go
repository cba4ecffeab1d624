package agents

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
)

// TestRefusedKey has the model refuse the key: one line says so in the end, between what
// the agent did and what to type next, the exit code is the agent's, the key was never
// inside, and once the sandbox is removed nothing is left of it but its home.
func TestRefusedKey(t *testing.T) {
	a := &agents[0]
	for _, wall := range walls {
		t.Run(a.name+"/"+wall, func(t *testing.T) {
			w := &a.ways[0]
			model := fakemodel.NewServer("another key", scripts...)
			p := newPlace(t, model, w.variables()...)
			// It would ask ten times more, for three minutes.
			r := p.run(append([]string{a.name, "--isolation", wall, "--env", "CLAUDE_CODE_MAX_RETRIES=0", "--"}, a.headless(fixPrompt)...)...)
			names := p.names()
			if len(names) != 1 {
				t.Fatalf("%q are there\n%s\n%s", names, r.stdout, r.stderr)
			}
			want := fmt.Sprintf("\ncarboy: claude ended (1) · no file changed\n"+
				"carboy: %s refused %s (status 401): is it good? carboy secret rotate, or set another\n"+
				"carboy: next: carboy diff %[3]s · carboy apply %[3]s · carboy claude --resume %[3]s\n", a.host, w.variable, names[0])
			if r.code != 1 || !strings.HasSuffix(r.stderr, want) || strings.Count(r.stderr, "refused") != 1 {
				t.Errorf("exit code %d, want 1\n%s\n%s\nwant at its end%s", r.code, r.stdout, r.stderr, want)
			}
			if strings.Contains(r.stdout+r.stderr, w.key) {
				t.Error("the key is told")
			}
			for _, q := range model.Requests(a.host) {
				if q.Credential != w.key && q.Credential != "" {
					t.Errorf("%s %s came with %q", q.Method, q.Path, q.Credential)
				}
			}
			p.keyIsOutside(wall, names[0], w.key, placeholderOf(p.ok("exec", names[0], "--", "env")))
			p.ok("rm", "-f", names[0])
			if left := p.names(); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
			if left := p.ok("volume", "ls"); strings.Count(left, "\n") != 2 || !strings.Contains(left, "home of claude for "+p.repo) {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}
