package jail_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// heldDir is a directory that this process, and so the agent, has open, and how
// it is found from there.
func heldDir(t *testing.T) (fd string) {
	t.Helper()
	held, err := os.Open("/usr/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	return fmt.Sprintf("fd/%d", held.Fd())
}

// The kernel opens interpreters for a command: none through what the agent has
// open, however it is named.
func TestInterpretersOfTheAgents(t *testing.T) {
	fd := heldDir(t)
	dir := playground(t)
	file := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/proc/self/"+fd, link); err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"self":    "/proc/self/" + fd + "/echo",
		"thread":  "/proc/thread-self/" + fd + "/echo",
		"above":   "/proc/self/" + fd + "/../bin/echo",
		"planted": link + "/echo",
		"of-dev":  "/dev/" + fd + "/echo",
	}
	scripts := map[string]string{}
	for name, interpreter := range tests {
		scripts[name] = file(name, []byte("#!"+interpreter+" by\n"))
	}
	scripts["loader"] = file("loader", interpreted(t, "/proc/self/"+fd+"/env"))
	// One script leads to another, whose interpreter is opened later.
	scripts["second"] = file("second", []byte("#!"+scripts["self"]+"\n"))
	control := file("control", []byte("#!/usr/bin/echo by\n"))
	for _, strict := range []bool{true, false} {
		j := start(t, jail.Config{Strict: strict})
		for _, u := range []jail.User{nobody, {}} {
			for name, script := range scripts {
				t.Run(fmt.Sprintf("%s-of-%d-strict-%t", name, u.UID, strict), func(t *testing.T) {
					r, err := run(t, j, jail.Command{Argv: []string{script}, User: u})
					if err == nil {
						t.Errorf("it ran: %s, with %q", r.status, r.out)
					}
				})
			}
			r, err := run(t, j, jail.Command{Argv: []string{control}, User: u})
			if want := "by " + control + "\n"; err != nil || r.out != want {
				t.Errorf("by its name: got %q, want %q: %v", r.out, want, err)
			}
		}
		j.Close()
	}
	// The agent itself, which has it open, can be led there.
	for name, script := range scripts {
		if err := exec.Command(script).Run(); err != nil && name != "loader" {
			t.Errorf("%s from the agent: %v", name, err)
		}
	}
}

// interpreted is a program whose loader is another.
func interpreted(t *testing.T, loader string) []byte {
	t.Helper()
	b, err := os.ReadFile("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		if i := strings.Index(string(b), own+"\x00"); i >= 0 && len(loader) <= len(own) {
			copy(b[i:i+len(own)], loader+strings.Repeat("\x00", len(own)-len(loader)))
			return b
		}
	}
	t.Skip("needs a /usr/bin/env that is linked to one of the usual loaders")
	return nil
}

// A command may open as many files as the agent was given, not what the
// runtime takes.
func TestFirstLimit(t *testing.T) {
	const first = 100
	if os.Getenv("JAIL_TEST_FIRST") != "" {
		j := start(t, jail.Config{})
		for _, u := range []jail.User{nobody, {}} {
			os.Stdout.WriteString("SOFT " + sh(t, j, u, "ulimit -Sn").out + "HARD " + sh(t, j, u, "ulimit -Hn").out)
		}
		j.Close()
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command("sh", "-c", "ulimit -Sn "+strconv.Itoa(first)+`; ulimit -Hn 500; exec "$0" -test.run='^TestFirstLimit$'`, os.Args[0])
	cmd.Env = append(os.Environ(), "JAIL_TEST_FIRST=1")
	out, err := cmd.CombinedOutput()
	if got, want := strings.Count(string(out), "SOFT 100\nHARD 500\n"), 2; err != nil || got != want {
		t.Errorf("%v, with\n%s", err, out)
	}
}

// What is passed as the first three files comes in their order, whatever numbers
// they have, and nothing comes with them.
func TestFilesOfACommand(t *testing.T) {
	j := start(t, jail.Config{})
	_ = heldDir(t)
	got := sh(t, j, nobody, "ls /proc/self/fd | tr '\n' ' '; readlink /proc/self/fd/0").out
	if want := "0 1 2 3 /dev/null\n"; got != want { // 3 is ls's own
		t.Errorf("got %q, want %q", got, want)
	}
}
