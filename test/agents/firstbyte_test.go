package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/fakemodel"
	"github.com/carboy-sandbox/carboy/test/internet"
)

// aloneFiles are those by which Claude Code asks nothing at its first run, on a
// machine without a wall: what carboy writes inside.
var aloneFiles = map[string]string{
	"home/.claude.json": `{"hasCompletedOnboarding": true, "bypassPermissionsModeAccepted": true, "customApiKeyResponses": {"approved": ["` +
		anthropicKey[len(anthropicKey)-20:] + `"], "rejected": []}, "projects": {"PROJECT": {"hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true}}}`,
	"home/.claude/settings.json": `{"skipDangerousModePermissionPrompt": true}`,
}

// TestFirstByte measures what a person waits for: from the command line to the
// agent's own first byte on the terminal, and to where a prompt may be typed.
// "cold" has no daemon, "warm" has one; both make a sandbox. "alone" is the same
// program on this machine. A round has each once, in turn; the first does not count.
func TestFirstByte(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("CARBOY_ROUNDS"))
	if err != nil {
		t.Skip("make bench-agents runs it")
	}
	a := &agents[0]
	p := newPlace(t, fakemodel.NewServer(a.ways[0].key, scripts...), append(a.ways[0].variables(), "IS_SANDBOX=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")...)
	for name, text := range aloneFiles {
		p.write(name, strings.ReplaceAll(text, "PROJECT", p.repo))
	}
	p.write("resolv.conf", "nameserver "+internet.Resolver+"\n")
	p.env = append(p.env, "NODE_EXTRA_CA_CERTS="+p.dir+"/roots.pem")
	type opening struct{ name, wall, how string }
	cases := []opening{{"alone", "", "alone"}}
	for _, wall := range walls {
		cases = append(cases, opening{wall + " cold", wall, "cold"}, opening{wall + " warm", wall, "warm"})
	}
	first, ready := map[string][]time.Duration{}, map[string][]time.Duration{}
	for round := range rounds + 1 {
		for _, c := range cases {
			b, r := p.opening(a, c.wall, c.how)
			if round > 0 {
				first[c.name], ready[c.name] = append(first[c.name], b), append(ready[c.name], r)
			}
		}
	}
	for _, c := range cases {
		t.Logf("%-13s n %d  first byte %s  prompt %s", c.name, rounds, spread(first[c.name]), spread(ready[c.name]))
	}
}

// opening opens an agent, and returns when its first byte came and when a prompt
// may be typed.
func (p *place) opening(a *agent, wall, how string) (first, ready time.Duration) {
	p.t.Helper()
	// Alone it looks names up as the sandbox's gate does: by the resolver that there is.
	cmd := exec.Command("unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, filepath.Join(p.dir, "resolv.conf"),
		filepath.Join(installed, "node_modules/.bin", a.name), "--dangerously-skip-permissions")
	if wall != "" {
		cmd = p.command(p.t.Context(), p.agent(a, wall, a.interactive)...)
	}
	cmd.Dir, cmd.Env = p.repo, p.env
	// What carboy itself says is no byte of the agent's.
	said, err := os.Create(filepath.Join(p.dir, "said"))
	if err != nil {
		p.t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	switch how {
	case "cold":
		p.run("daemon", "stop")
	case "warm":
		p.run("ls") // it starts one
	}
	start := time.Now()
	term := p.openCommand(cmd)
	select {
	case <-term.first:
		first = time.Since(start)
	case <-term.done:
		text, _ := os.ReadFile(said.Name())
		p.t.Fatalf("%s %s: it ended without a byte: %s", wall, how, text)
	}
	term.shows(a.ready)
	ready = time.Since(start)
	term.hangUp()
	if wall != "" {
		for _, name := range p.names() {
			p.ok("rm", "-f", name)
		}
	}
	return first, ready
}

// spread is a median, with the least and the most.
func spread(d []time.Duration) string {
	slices.Sort(d)
	text := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + " ms" }
	return text(d[len(d)/2]) + " (" + text(d[0]) + " to " + text(d[len(d)-1]) + ")"
}
