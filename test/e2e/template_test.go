package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// builtFile is a Dockerfile with a package of Debian and one of Python, both
// from the world's own archives.
const builtFile = `FROM base
COPY app/ /srv/app/
RUN mkdir -p /srv/apt/state/lists/partial /srv/apt/cache/archives/partial && \
    echo 'deb [trusted=yes] http://%s/debian stable main' > /srv/apt/sources && \
    apt-get -qq -o Dir::Etc::SourceList=/srv/apt/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::lists=/srv/apt/state/lists update && \
    apt-get -qq -y -o Dir::Etc::SourceList=/srv/apt/sources -o Dir::Etc::SourceParts=/dev/null -o Dir::State::lists=/srv/apt/state/lists install carboy-hello
RUN PATH=/usr/bin:$PATH python3 -m pip install -q --disable-pip-version-check --no-cache-dir -t /srv/lib carboy_first
ENV PYTHONPATH=/srv/lib
WORKDIR /srv/app
USER user
ENTRYPOINT ["/bin/sh", "-c", "echo up > /tmp/up; exec sleep 1000"]
`

// builtHome is a home whose builds may reach the archives, and a directory to
// build from.
func builtHome(t *testing.T, settings string) (h *home, dir string) {
	t.Helper()
	needs(t, "apt-get", "dpkg", "dpkg-deb", "python3")
	w, _ := clientWorld(t)
	h = w.home()
	config := fmt.Sprintf(`{"resolvers": [%q]%s}`, worldDNS+":53", settings)
	if err := os.WriteFile(filepath.Join(h.dir, "config", "carboy", "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"Dockerfile": fmt.Sprintf(builtFile, debianArchive), "app/data": "copied\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return h, dir
}

// A template is built with packages of local archives, and ten sandboxes of it
// run at once. The second build takes every step from the first.
func TestTemplateBuild(t *testing.T) {
	t.Parallel()
	h, dir := builtHome(t, `, "build_policy": {"presets": ["debian", "pypi"]}`)
	begun := time.Now()
	r := h.run(nil, "template", "build", "--name", "tools", "--ready", "test -s /tmp/up", dir)
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	first := time.Since(begun)
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			r := h.run(nil, "run", "--template", "tools", "--", "sh", "-c", "carboy-hello; cat data /tmp/up; python3 -c 'import carboy_first as c; print(c.word)'; pwd; id -un")
			if want := "hello from a package\ncopied\nup\ntrusted\n/srv/app\nuser\n"; r.code != 0 || r.stdout != want {
				t.Errorf("exit code %d\n%q\n%s", r.code, r.stdout, r.stderr)
			}
		})
	}
	all.Wait()
	begun = time.Now()
	r = h.run(nil, "template", "build", "--name", "tools", "--ready", "test -s /tmp/up", dir)
	if cached := strings.Count(r.stderr, "CACHED"); r.code != 0 || cached != 8 || strings.Contains(r.stderr, "carboy: [builder") {
		t.Errorf("exit code %d, %d steps cached\n%s", r.code, cached, r.stderr)
	}
	t.Logf("built in %v, and again in %v", first, time.Since(begun))
	h.ok("template", "rm", "tools")
	if r := h.run(nil, "run", "--template", "tools", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "not found") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// Without the setting a build reaches nothing: the control of what is built
// above.
func TestTemplateBuildOffline(t *testing.T) {
	t.Parallel()
	h, dir := builtHome(t, "")
	r := h.run(nil, "template", "build", "--name", "tools", dir)
	if r.code != 125 || !strings.Contains(r.stderr, "failed to run command") || !regexp.MustCompile(`(?i)resolv|network`).MatchString(r.stderr) {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// A daemon that is killed while it builds leaves nothing over: the next one says
// that the build was interrupted, and the same build then succeeds.
func TestTemplateKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(file, []byte("FROM base\nRUN echo one > /srv/one\nRUN sleep 600\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	go h.run(nil, "template", "build", "--name", "cut", dir) // fails with the daemon
	until(t, func() bool {
		boxes, _ := filepath.Glob(h.dir + "/state/carboy/boxes/*/*")
		logs, _ := filepath.Glob(h.dir + "/state/carboy/templates/logs/*.jsonl")
		if len(boxes) != 1 || len(logs) != 1 {
			return false
		}
		text, _ := os.ReadFile(logs[0])
		return strings.Contains(string(text), "RUN sleep")
	})
	h.killDaemon()
	until(t, func() bool { return strings.Contains(h.run(nil, "template", "ls").stdout, "error") })
	until(t, func() bool {
		boxes, _ := filepath.Glob(h.dir + "/state/carboy/boxes/*/*")
		return len(boxes) == 0
	})
	if err := os.WriteFile(file, []byte("FROM base\nRUN echo one > /srv/one\nRUN echo two > /srv/two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := h.run(nil, "template", "build", "--name", "cut", dir)
	if r.code != 0 || !strings.Contains(r.stderr, "CACHED [builder 3/6] RUN echo one") {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	if got := h.ok("run", "--template", "cut", "--", "cat", "/srv/one", "/srv/two"); got != "one\ntwo\n" {
		t.Errorf("%q", got)
	}
	// What was kept for later builds goes, and what the template needs stays.
	if got := h.ok("template", "logs", "cut"); !strings.HasSuffix(got, "Build finished\n") || !strings.Contains(got, "RUN echo two") {
		t.Errorf("%q", got)
	}
	h.ok("template", "tag", "cut", "v1")
	if got := h.ok("template", "gc"); !regexp.MustCompile(`^dropped [1-9]\d* steps, 1 snapshot of `).MatchString(got) {
		t.Errorf("%q", got)
	}
	if got := h.ok("run", "--template", "cut:v1", "--", "cat", "/srv/one", "/srv/two"); got != "one\ntwo\n" {
		t.Errorf("after it: %q", got)
	}
	if r := h.run(nil, "template", "build", "--name", "cut", dir); r.code != 0 || strings.Contains(r.stderr, "CACHED") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	h.ok("template", "rm", "cut")
}
