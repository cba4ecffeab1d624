package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// viteProject is a page that takes an edit of text.js by vite's WebSocket, and
// is not loaded again for it.
var viteProject = map[string]string{
	"index.html": `<!doctype html><title>inside</title><div id="it"></div><script type="module" src="/main.js"></script>`,
	"main.js": `import { text } from './text.js'
const show = (t) => { document.querySelector('#it').textContent = t }
show(text)
import.meta.hot.accept('./text.js', (m) => show(m.text))
import.meta.hot.send('carboy:hello')
import.meta.hot.on('carboy:hello', () => { window.connected = true })
`,
	"text.js":         "export const text = 'as it was'\n",
	"public/plain.js": "window.plain = 'yes'\n",
	"vite.config.js": `export default {
  cacheDir: '/tmp/vite', logLevel: 'info', clearScreen: false,
  plugins: [{ name: 'hello', configureServer(s) { s.ws.on('carboy:hello', (_, c) => c.send('carboy:hello', {})) } }],
}
`,
}

// npmTree has copies of packages of test/e2b, and all that they need, where any
// user can read them. It is made once.
var npmTree = sync.OnceValues(func() (string, error) {
	dir, err := shared.mkdir("carboy-npm-*")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	done := map[string]bool{}
	for _, name := range []string{"vite", "playwright-core"} {
		if err := copyPackage(dir, name, done); err != nil {
			return "", fmt.Errorf("%w: make deps", err)
		}
	}
	return dir, copyFile(filepath.Join(dir, "ports.mjs"), "../e2b/ports.mjs", 0o644)
})

// copyPackage copies a package of npm and those that it depends on.
func copyPackage(dir, name string, done map[string]bool) error {
	from := filepath.Join("../e2b/node_modules", name)
	raw, err := os.ReadFile(filepath.Join(from, "package.json"))
	if err != nil || done[name] {
		return err
	}
	done[name] = true
	var about struct {
		Dependencies         map[string]string `json:"dependencies"`
		OptionalDependencies map[string]string `json:"optionalDependencies"`
	}
	if err := json.Unmarshal(raw, &about); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(dir, "node_modules", name), os.DirFS(from)); err != nil {
		return err
	}
	for _, deps := range []map[string]string{about.Dependencies, about.OptionalDependencies} {
		for dep := range deps {
			if _, err := os.Stat(filepath.Join(from, "node_modules", dep)); err == nil {
				continue // it came along
			}
			err := copyPackage(dir, dep, done)
			if _, must := about.Dependencies[dep]; err != nil && (must || !os.IsNotExist(err)) { // those of other systems are not there
				return err
			}
		}
	}
	return nil
}

// TestBrowser has a real browser look at a vite dev server inside a sandbox that
// has no network: published, forwarded and opened, over each wall, as root and as an
// ordinary user. Edits are made inside, and on the host while carboy sync brings them.
func TestBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("there is no chromium: make deps")
	}
	tree, err := npmTree()
	if err != nil {
		t.Fatal(err)
	}
	crossed(t, func(t *testing.T, wall, user string) {
		w := newWorld(t)
		h := w.home()
		as := (*syscall.SysProcAttr)(nil)
		if user == "ordinary" {
			h = w.ordinaryHome(carboy)
			as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}}
		}
		lookByBrowser(t, w, h, as, wall, tree, chromium)
	})
}

func lookByBrowser(t *testing.T, w *world, h *home, as *syscall.SysProcAttr, wall, tree, chromium string) {
	project := h.project(viteProject)
	h.ok("create", "--name", "web", "--isolation", wall, "--workspace", project, "--mount", tree+":/opt/npm:ro", "-p", "0:5173")
	h.ok("exec", "-d", "web", "--", "node", "/opt/npm/node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", "5173", "--strictPort")
	published := fmt.Sprintf("http://127.0.0.1:%d/", h.published("web")[0].HostPort)
	forward := h.forward("web", "0:5173")
	watching := h.watch("web")
	until(t, func() bool { return h.run(nil, "exec", "web", "--", "curl", "-sf", "http://127.0.0.1:5173/").code == 0 })
	ways, err := json.Marshal(map[string]string{
		"publish": published, "forward": "http://" + forward.at[0] + "/", "open": strings.TrimSpace(h.ok("open", "web", "5173")),
	})
	if err != nil {
		t.Fatal(err)
	}
	binary := carboy
	if as != nil {
		binary = filepath.Join(h.dir, "carboy")
	}
	edit, err := json.Marshal([]string{
		binary, "exec", "web", "--", "sh", "-c", `printf "export const text = '%s'\n" "$1" >/workspace/text.js`, "sh",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(4*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", filepath.Join(tree, "ports.mjs"))
	cmd.Env = append(h.env, "CARBOY_CHROMIUM="+chromium, "CARBOY_WAYS="+string(ways), "CARBOY_EDIT="+string(edit), "CARBOY_PROJECT="+project,
		"TMPDIR="+h.dir) // not every machine's /tmp is for everybody
	cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = h.dir, as, 5*time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	w.in(func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	t.Logf("%s\nsync brought: %q", out.Bytes(), watching())
	if err != nil {
		t.Fatal(err)
	}
	if code, said := forward.interrupt(t); code != 0 {
		t.Errorf("forward ended with %d by Ctrl-C: %s", code, said)
	}
}

// project writes a tree that the home's user owns.
func (h *home) project(files map[string]string) string {
	h.t.Helper()
	dir := filepath.Join(h.dir, "project")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			h.t.Fatal(err)
		}
	}
	var st syscall.Stat_t
	if err := syscall.Stat(h.dir, &st); err != nil {
		h.t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(st.Uid), int(st.Gid))
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return dir
}
