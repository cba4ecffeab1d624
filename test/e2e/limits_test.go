package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	h := newHome(t)
	name := h.create("--memory", "256m", "--pids", "100", "--disk", "64m")
	tests := []struct {
		name   string
		args   []string
		code   int
		stderr string
	}{
		{"timeout", []string{"--timeout", "1s", name, "--", "sleep", "1000"}, 124, "timed out"},
		{"fork-bomb", []string{name, "--", "sh", "-c", "b() { b | b & }; b; for i in $(seq 500); do sleep 300 & done"}, -1, "limit of processes (100)"},
		{"disk-filler", []string{name, "--", "sh", "-c", "cat /dev/zero > /workspace/fill"}, 1, "limit of disk"},
		{"disk-mended", []string{name, "--", "rm", "/workspace/fill"}, 0, ""},
		{"not-found", []string{name, "--", "no-such-command"}, 127, "no-such-command"},
		{"not-executable", []string{name, "--", "/etc/passwd"}, 126, "/etc/passwd"},
		{"own-code", []string{name, "--", "sh", "-c", "exit 42"}, 42, ""},
		{"signalled", []string{name, "--", "sh", "-c", "kill -TERM $$"}, 143, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := h.run(nil, append([]string{"exec"}, tt.args...)...)
			if tt.code >= 0 && r.code != tt.code {
				t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, tt.code, r.stdout, r.stderr)
			}
			if tt.code < 0 && r.code == 0 {
				t.Error("exit code 0")
			}
			if !strings.Contains(r.stderr, tt.stderr) {
				t.Errorf("stderr %q does not say %q", r.stderr, tt.stderr)
			}
			if got := h.ok("exec", name, "--", "echo", "on"); got != "on\n" {
				t.Errorf("the sandbox does not go on: %q", got)
			}
		})
	}
}

func TestInodeLimit(t *testing.T) {
	h := newHome(t)
	name := h.create("--disk", "16m")
	r := h.run(nil, "exec", name, "--", "python3", "-c", "import os\nos.chdir('/workspace')\nfor i in range(2000000): open(str(i),'w').close()")
	if r.code == 0 || !strings.Contains(r.stderr, "limit of files (4096)") {
		t.Errorf("an inode filler ended with %d: %s", r.code, r.stderr)
	}
	if got := h.ok("exec", name, "--", "echo", "on"); got != "on\n" {
		t.Errorf("the sandbox does not go on: %q", got)
	}
}

func TestOutOfMemory(t *testing.T) {
	h := newHome(t)
	name := h.create("--memory", "128m")
	h.ok("exec", name, "--", "sh", "-c", "echo kept > /workspace/work")
	r := h.run(nil, "exec", name, "--", "python3", "-c", "x = []\nwhile True: x.append(bytearray(b'x' * (8 << 20)))")
	if r.code != 137 || !strings.Contains(r.stderr, "memory") {
		t.Errorf("a memory hog ended with %d: %s", r.code, r.stderr)
	}
	r = h.run(nil, "exec", name, "--", "cat", "/workspace/work")
	if r.code != 0 || r.stdout != "kept\n" {
		t.Errorf("the next command: %+v", r)
	}
	if !strings.Contains(r.stderr, "memory") || !strings.Contains(r.stderr, "lost") {
		t.Errorf("the next command does not say what was lost: %q", r.stderr)
	}
}

// TestSetMemoryInUse: what is in use, by the figure that is shown, can't be taken away,
// and the error says sizes as people do.
func TestSetMemoryInUse(t *testing.T) {
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall, "--memory", "1g")
		h.ok("exec", "-d", name, "--", "python3", "-c", "x = bytearray(b'x' * (200 << 20))\nopen('/workspace/up', 'w').close()\nimport time\ntime.sleep(3600)")
		h.ok("exec", name, "--", "sh", "-c", "until [ -e /workspace/up ]; do sleep 0.1; done")
		var u struct{ Memory int64 }
		if err := json.Unmarshal([]byte(h.ok("stats", "--json", "--no-stream", name)), &u); err != nil || u.Memory < 200<<20 {
			t.Fatalf("stats shows %+v, %v", u, err)
		}
		says := regexp.MustCompile(`^carboy: memory [0-9.]+ MiB: sandbox ` + name + ` uses [0-9.]+ MiB now\n`)
		for _, to := range []int64{100 << 20, u.Memory - 20<<20} { // the second would fit with what the wall has on top
			r := h.run(nil, "set", name, "--memory", strconv.FormatInt(to, 10))
			if r.code != 125 || !says.MatchString(r.stderr) {
				t.Errorf("set to %d of %d in use: code %d, %s%s", to, u.Memory, r.code, r.stdout, r.stderr)
			}
		}
		h.ok("set", name, "--memory", strconv.FormatInt(u.Memory+100<<20, 10))
		h.ok("exec", name, "--", "true")
	})
}

// TestSetMemoryGivenBack: what a sandbox can do without, as the kernel's own memory for the files that were
// looked at, is in no one's way who takes memory from it.
func TestSetMemoryGivenBack(t *testing.T) {
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall, "--memory", "1g")
		files := 40_000
		if wall == "gvisor" { // whose kernel needs memory besides, and time
			files = 20_000
		}
		h.ok("exec", name, "--", "python3", "-c", fmt.Sprintf("import os\nos.mkdir('/tmp/many'); os.chdir('/tmp/many')\nfor i in range(%d):\n  with open(str(i), 'w') as f: f.write('x' * (200000000 // %[1]d))", files))
		var u struct {
			Memory int64
			Cache  int64 `json:"memory_cache"`
		}
		const to = 100 << 20
		if err := json.Unmarshal([]byte(h.ok("stats", "--json", "--no-stream", name)), &u); err != nil || u.Memory+u.Cache < 2*to || u.Cache < 100<<20 {
			t.Fatalf("stats shows %+v, %v", u, err)
		}
		h.ok("set", name, "--memory", strconv.FormatInt(to, 10))
		h.ok("exec", name, "--", "sh", "-c", "cat /tmp/many/1??? >/dev/null")
	})
}
