package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// nodeProject is a directory with a project of one dependency, locked.
func nodeProject(t *testing.T, h *home) string {
	t.Helper()
	dir := filepath.Join(h.dir, "project")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return "https://" + npmRegistry + "/" + name + "/-/" + name + "-1.0.0.tgz" }
	project := map[string]any{"name": "small", "version": "1.0.0", "dependencies": map[string]string{"carboy-first": "^1.0.0"}}
	lock := map[string]any{"name": "small", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": map[string]any{
		"":                           project,
		"node_modules/carboy-first":  map[string]any{"version": "1.0.0", "resolved": at("carboy-first"), "dependencies": map[string]string{"carboy-second": "^1.0.0"}},
		"node_modules/carboy-second": map[string]any{"version": "1.0.0", "resolved": at("carboy-second")},
	}}
	for name, v := range map[string]any{"package.json": project, "package-lock.json": lock} {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What is learned of npm ci lets it pass again, and nothing else.
func TestPolicyLearn(t *testing.T) {
	t.Parallel()
	needs(t, "npm", "curl", "python3")
	w := newWorld(t)
	w.sites(worldA, map[string]http.Handler{npmRegistry: nodeSite()})
	w.sites(worldB, map[string]http.Handler{"web.example": webSite()})
	w.resolve("asked.example", worldB)
	w.resolve("held.example", worldB)
	silent := w.listen(net.JoinHostPort(worldB, "5432"))
	t.Cleanup(func() { silent.Close() })
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() }) // and not before
		}
	}()
	const install = "cp -r /workspace ~/p && cd ~/p && npm ci --no-audit --no-fund && node -p 'require(\"carboy-first\") + \" and \" + require(\"carboy-second\")'"
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			h := w.home()
			dir, file := nodeProject(t, h), filepath.Join(h.dir, "policy.yaml")
			in := []string{"--isolation", wall, "--workspace", dir + ":ro"}
			carboy := func(args []string, more ...string) result {
				return h.run(nil, append(append([]string{}, args...), more...)...)
			}

			r := carboy(append([]string{"policy", "learn", "--name", "learner", "-o", file}, in...), "--", "sh", "-c", "getent hosts asked.example; "+install)
			if r.code != 0 || !strings.Contains(r.stdout, "trusted and trusted") || !strings.Contains(r.stderr, ": all pass") {
				t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, err := policy.Parse(text)
			if err != nil || len(p.Rules) != 1 || strings.Join(p.Rules[0].Hosts, " ") != npmRegistry || p.Default != "" || !strings.Contains(string(text), "asked.example") {
				t.Fatalf("%v, of\n%s", err, text)
			}
			learned := append([]string{"run", "--policy", file}, in...)
			if r := carboy(learned, "--", "sh", "-c", install); r.code != 0 || !strings.Contains(r.stdout, "trusted and trusted") {
				t.Fatalf("under its own policy: exit code %d\n%s%s\n%s", r.code, r.stdout, r.stderr, text)
			}
			w.forget()
			r = carboy(learned, "--", "sh", "-c", fmt.Sprintf("curl -sS https://web.example/; curl -sS https://%s/other; curl -sS -X PUT -d x https://%s/carboy-first", npmRegistry, npmRegistry))
			if strings.Count(r.stdout, `"code":"request_refused"`) != 2 || !strings.Contains(r.stdout, `"code":"not_allowed"`) || w.came("web.example GET /") {
				t.Errorf("what was added by hand is not refused: %s%s", r.stdout, r.stderr)
			}

			learnedAgain(t, h, file, string(text), in)

			// What is open when the command ends, and would be for ever, is known too.
			held := "import socket, subprocess; s = socket.create_connection(('held.example', 5432)); s.send(b'x'); s.set_inheritable(True); subprocess.Popen(['sleep', '1000'], close_fds=False)"
			r = carboy([]string{"policy", "learn", "--isolation", wall}, "--", "python3", "-c", held)
			if r.code != 0 || !strings.Contains(r.stdout, "hosts: [held.example]\n    ports: [\"5432\"]\n    protocol: tcp") || !strings.Contains(r.stderr, ": all pass") {
				t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}

			// A command that fails leaves nothing, and says so with its own code.
			r = carboy(append([]string{"policy", "learn"}, in...), "--", "sh", "-c", "curl -sS https://web.example/; exit 7")
			if r.code != 7 || r.stdout != "" || !strings.Contains(r.stderr, "no policy is written") {
				t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// learnedAgain learns from the record of the sandbox learner, and over a file that is there.
func learnedAgain(t *testing.T, h *home, file, text string, in []string) {
	t.Helper()
	carboy := func(args []string, more ...string) result {
		return h.run(nil, append(append([]string{}, args...), more...)...)
	}
	// From its record comes the same, whether it is kept or was saved.
	saved := filepath.Join(h.dir, "record.json")
	if err := os.WriteFile(saved, []byte(h.ok("net", "log", "--json", "learner")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"learner", saved} {
		if r := carboy([]string{"policy", "learn", "--from", from}); r.code != 0 || r.stdout != text {
			t.Errorf("from %s: exit code %d\n%s%s", from, r.code, r.stdout, r.stderr)
		}
	}
	// The same again is left as it is; another is shown, and not written.
	if r := carboy([]string{"policy", "learn", "--from", "learner", "-o", file}); r.code != 0 || !strings.Contains(r.stderr, "says the same already") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	more := append(in, "--", "curl", "-sS", "-d", "sent", "https://web.example/upload")
	r := carboy([]string{"policy", "learn", "-o", file}, more...)
	if now, _ := os.ReadFile(file); r.code != 125 || !strings.Contains(r.stderr, "+    hosts: [web.example]") || string(now) != text {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	r = carboy([]string{"policy", "learn", "--force", "-o", file}, more...)
	if now, _ := os.ReadFile(file); r.code != 0 || !strings.Contains(string(now), "# sends data: POST, 1 request") || !strings.Contains(r.stderr, "POST to web.example sends data") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stderr, now)
	}
}
