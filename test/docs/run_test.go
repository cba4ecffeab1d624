package docs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/internet"
	"github.com/carboy-sandbox/carboy/test/patience"
)

const root = "../.."

// documents are those whose blocks are run and whose links are followed.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, glob := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 5 {
		t.Fatalf("found only %d documents: %q", len(files), files)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestShownCommandsWork(t *testing.T) {
	ran := 0
	bin := carboy(t)
	for _, file := range documents(t) {
		cmds, err := commands(read(t, file), os.Geteuid() == 0)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if len(cmds) == 0 {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			if os.Geteuid() == 0 { // each has a network of its own, and mostly waits
				t.Parallel()
			}
			w := newWorld(t, bin)
			for _, problem := range w.run(t, cmds) {
				t.Errorf("%s:%s", file, problem)
			}
		})
	}
	if ran == 0 {
		t.Error("no document has a block to run")
	}
}

// carboy returns the binary under test: CARBOY_BIN, or what make builds.
func carboy(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("CARBOY_BIN"); bin != "" {
		return bin
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "-C", root, "build", "BIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	return filepath.Join(dir, "carboy")
}

// world is a home and a working directory for one document.
type world struct {
	dir string
	env []string
	net *internet.Internet // nil without root: then documents are run in the machine's own network
}

// newWorld makes one in which bin is carboy, both on the PATH and as
// bin/carboy. At the test's end its sandboxes and its daemon are gone.
func newWorld(t *testing.T, bin string) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{dir: dir, env: []string{
		"HOME=" + dir, "LANG=C.UTF-8", "USER=" + os.Getenv("USER"),
		"PATH=" + filepath.Join(dir, "work", "bin") + ":" + os.Getenv("PATH"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
	}}
	for _, name := range []string{"STATE", "RUNTIME", "CACHE", "CONFIG"} {
		sub := filepath.Join(dir, strings.ToLower(name))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		key := "XDG_" + name + "_HOME"
		if name == "RUNTIME" {
			key = "XDG_RUNTIME_DIR"
		}
		w.env = append(w.env, key+"="+sub)
	}
	if err := os.MkdirAll(filepath.Join(dir, "work", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin, filepath.Join(dir, "work", "bin", "carboy")); err != nil {
		t.Fatal(err)
	}
	// As npm install would leave them.
	if err := os.Symlink(filepath.Join(mustAbs(t, root), "test", "e2b", "node_modules"), filepath.Join(dir, "work", "node_modules")); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		w.connect(t)
	}
	t.Cleanup(func() { w.end(t) })
	return w
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// start starts a command in the world's network.
func (w *world) start(cmd *exec.Cmd) error {
	if w.net == nil {
		return cmd.Start()
	}
	return w.net.Start(cmd)
}

// carboy runs one command line of the world's carboy.
func (w *world) carboy(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.dir, "work", "bin", "carboy"), args...)
	cmd.Env, cmd.Dir = w.env, w.dir
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := w.start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return out.Bytes(), err
}

// maxLog bounds how much of a daemon's log a failed test shows, in bytes.
const maxLog = 8000

// end removes what a document left behind: sandboxes outlive the daemon.
func (w *world) end(t *testing.T) {
	out, err := w.carboy("ls", "--json")
	var left []struct{ Name string }
	if err != nil || json.Unmarshal(out, &left) != nil {
		t.Errorf("carboy ls --json: %v\n%s", err, out)
	}
	for _, sb := range left {
		if _, err := w.carboy("rm", "-f", sb.Name); err != nil {
			t.Errorf("carboy rm -f %s: %v", sb.Name, err)
		}
	}
	if _, err := w.carboy("daemon", "stop"); err != nil {
		t.Errorf("carboy daemon stop: %v", err)
	}
	if log, err := os.ReadFile(filepath.Join(w.dir, "state", "carboy", "daemon.log")); err == nil && t.Failed() {
		t.Logf("daemon.log:\n%s", log[max(0, len(log)-maxLog):])
	}
}

// run runs cmds in one shell and says what was not as it should be.
func (w *world) run(t *testing.T, cmds []command) (problems []string) {
	t.Helper()
	// The first call may say that it starts the daemon; documents don't show it.
	if out, err := w.carboy("ls"); err != nil {
		t.Fatalf("carboy ls: %v\n%s", err, out)
	}
	sep := "end-of-command-" + rand.Text()
	script := filepath.Join(w.dir, "script")
	if err := os.WriteFile(script, []byte(shell(cmds, sep)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(5*time.Minute))
	defer cancel()
	sh := exec.CommandContext(ctx, "bash", script)
	sh.Env, sh.Dir = w.env, filepath.Join(w.dir, "work")
	sh.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	sh.Stdout, sh.Stderr = &out, &out
	err := w.start(sh)
	if err == nil {
		err = sh.Wait()
	}
	if err != nil {
		problems = append(problems, fmt.Sprintf("0: the shell: %v", err))
	}
	return append(problems, compare(cmds, out.String(), sep)...)
}

// shell writes cmds as a script that prints sep and the exit code after each.
func shell(cmds []command, sep string) string {
	var b strings.Builder
	for _, c := range cmds {
		// What make builds is the binary under test.
		text := strings.TrimPrefix(c.text, "make build && ")
		fmt.Fprintf(&b, "{\n%s\n} </dev/null\necho \"%s $?\"\n", text, sep)
	}
	return b.String()
}

// compare holds what a script printed against what its commands are to do.
func compare(cmds []command, output, sep string) (problems []string) {
	for _, c := range cmds {
		got, rest, ok := strings.Cut(output, sep+" ")
		if !ok {
			return append(problems, fmt.Sprintf("%d: %s: did not end; printed so far:\n%s", c.line, c.text, output))
		}
		code, rest, _ := strings.Cut(rest, "\n")
		output = rest
		if code != strconv.Itoa(c.exit) {
			problems = append(problems, fmt.Sprintf("%d: %s: exit code %s, want %d; printed\n%s", c.line, c.text, code, c.exit, got))
		}
		if !c.prints(got) {
			problems = append(problems, fmt.Sprintf("%d: %s: printed\n%s\nwant\n%s", c.line, c.text, got, strings.Join(c.want, "\n")))
		}
	}
	return problems
}
