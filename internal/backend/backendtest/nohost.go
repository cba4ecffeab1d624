package backendtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// plant puts a file that everybody may read wherever the host's users keep
// theirs, and returns the paths. What lies in /usr and /opt is the machine's,
// and shown as such.
func plant(t *testing.T) []string {
	t.Helper()
	name := "carboy-conformance-" + newID()
	var paths []string
	for _, dir := range []string{"/home", "/root", "/tmp", "/var/tmp", "/srv", "/mnt", "/run", "/var/lib", "/etc", "/dev/shm", t.TempDir()} {
		path := filepath.Join(dir, name)
		if os.WriteFile(path, []byte(secret), 0o644) != nil {
			continue // not ours to write, or not there
		}
		t.Cleanup(func() { _ = os.Remove(path) })
		paths = append(paths, path)
	}
	return paths
}

// testNoHost looks inside for what is the host's.
func testNoHost(t *testing.T, s *suite) {
	w := s.open(t)
	planted := plant(t)
	dir := tree(t, map[string]string{"shown": secret})
	b := w.begin(t, func(sb *sandbox.Sandbox) {
		sb.Spec.Mounts = []sandbox.Mount{{Source: hostDir(t, dir), Target: "/mnt/shown", ReadOnly: true}}
		sb.Spec.Env = map[string]string{"SHOWN": "to-commands"}
	})
	as := func(t *testing.T, test func(t *testing.T, user string)) {
		for _, user := range s.users() {
			t.Run(user, func(t *testing.T) { test(t, user) })
		}
	}
	t.Run("files", func(t *testing.T) {
		as(t, func(t *testing.T, user string) {
			// What was mounted is found by the same means.
			for _, path := range append(planted, "/mnt/shown/shown") {
				got := b.run(t, command(user, "cat "+path)).stdout
				if shown := path == "/mnt/shown/shown"; shown != (got == secret) {
					t.Errorf("%s: %q", path, got)
				}
			}
		})
	})
	t.Run("accounts", func(t *testing.T) {
		host, err := os.ReadFile("/etc/shadow")
		if err != nil {
			t.Skip(err)
		}
		as(t, func(t *testing.T, user string) {
			if got := b.run(t, command(user, "cat /etc/shadow /etc/shadow-")).stdout; got != "" && strings.Contains(string(host), got) {
				t.Error("/etc/shadow is the host's")
			}
		})
		if got := b.run(t, command("user", "cat /etc/shadow")).stdout; got != "" {
			t.Errorf("uid 1000 reads /etc/shadow: %q", got)
		}
	})
	t.Run("environment", func(t *testing.T) {
		as(t, func(t *testing.T, user string) {
			got := b.run(t, command(user, "cat /proc/[0-9]*/environ | tr '\\0' '\\n'")).stdout
			if strings.Contains(got, secret) || strings.Contains(got, secretEnv) {
				t.Error("the environment of whoever opened the wall is seen")
			}
			if !strings.Contains(got, "SHOWN=to-commands") {
				t.Errorf("the environment of a command itself is not: %q", got)
			}
		})
	})
	t.Run("processes", func(t *testing.T) { hostProcesses(t, s, b) })
	t.Run("kernel", func(t *testing.T) { hostKernel(t, s, b) })
}

// hostProcesses looks inside for a process of the host's, by name and by
// number.
func hostProcesses(t *testing.T, s *suite, b *instance) {
	marker := exec.CommandContext(t.Context(), "sleep", "7078")
	must(t, marker.Start())
	t.Cleanup(func() { _ = marker.Wait() }) // the context has ended by then, and it with it
	own := b.begin(t, argv("sleep", "7079"))
	for _, user := range s.users() {
		got := b.run(t, command(user, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
		if strings.Contains(got, "sleep 7078") {
			t.Errorf("as %s: the host's process is seen", user)
		}
		if !strings.Contains(got, "sleep 7079") {
			t.Errorf("as %s: the instance's own is not: %q", user, got)
		}
		b.run(t, command(user, fmt.Sprintf("kill -9 %d %d", marker.Process.Pid, os.Getpid())))
		if zombie(fmt.Sprintf("/proc/%d", marker.Process.Pid)) {
			t.Fatalf("as %s: the host's process was killed", user)
		}
	}
	own.signal(9, true)
	own.end()
}

// hostKernel tries to change what the whole host would see.
func hostKernel(t *testing.T, s *suite, b *instance) {
	name, err := os.Hostname()
	must(t, err)
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	must(t, err)
	for _, user := range s.users() {
		b.run(t, command(user, "hostname intruder; echo intruder > /proc/sys/kernel/hostname; echo '|/tmp/x' > /proc/sys/kernel/core_pattern; mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem; mount -t tmpfs none /mnt"))
		if now, _ := os.Hostname(); now != name {
			t.Errorf("as %s: the host is called %q now", user, now)
			_ = unix.Sethostname([]byte(name))
		}
		if now, _ := os.ReadFile("/proc/sys/kernel/core_pattern"); string(now) != string(pattern) {
			t.Errorf("as %s: the host's core_pattern is %q now", user, now)
			_ = os.WriteFile("/proc/sys/kernel/core_pattern", pattern, 0o644)
		}
	}
	if got := b.run(t, command("user", "head -c 1 /dev/mem || head -c 1 /dev/kmsg || ls /dev/sda /dev/vda /dev/loop0")); got.stdout != "" || got.exit.GetCode() == 0 {
		t.Errorf("devices of the host: %+v", got)
	}
}
