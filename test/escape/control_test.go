package escape

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// blind are attempts that an ordinary user of the open host does not succeed
// with either, and why. Each has a weakness that it notices, or is a second
// look at what another one notices.
var blind = map[string]string{
	"own-proc":          "/proc is the host's own there",
	"agent-processes":   "there is no agent",
	"process-files":     "others' files in /proc are closed by the host's kernel",
	"trace":             "others can't be traced",
	"newborn-memory":    "there is no agent",
	"identity":          "the user is the one asked for",
	"become-root":       "the host's kernel refuses",
	"file-capabilities": "the host's kernel refuses",
	"proc-writes":       "root's files",
	"sys-writes":        "root's files",
	"control-directory": "there is none",
	"uncover":           "there is no cover",
	"make-devices":      "root's right",
	"enter-namespaces":  "others' are closed",
	"change-root":       "root's right",
	"agent-socket":      "there is no agent",
	"shared-socket":     "there is no share",
	"raw-sockets":       "root's right",
	"routes":            "root's right",
	"bpf":               "an administrator's choice, and often off",
	"perf-events":       "an administrator's choice",
	"userfault":         "an administrator's choice",
	"io-uring":          "an administrator's choice",
	"watch-everything":  "newer kernels alone",
	"file-handles":      "root's right",
	"kernel-log":        "an administrator's choice",
	"kernel-files":      "an administrator's choice",
	"control-groups":    "depends on the host",
	"interfaces":        "depends on the host",
	"terminal-input":    "newer kernels refuse it",
	"masked":            "root plants there",
	"keyring":           "kernels without keys",
	"message-queues":    "kernels without queues",
	"read-only-tree":    "there is no share",
	"git-hooks":         "there is no share",
	"git-pinned":        "there is no share",
	"links-out":         "there is no share",
	"host-paths":        "there is no daemon",
	"signals":           "the host's processes are seen as well",
	"set-id-image":      "depends on what is installed",
	"landlock":          "newer kernels alone",
	"i386-calls":        "other processors, and kernels without them",
	"x32-calls":         "other processors",
	"calls-userfault":   "old kernels have no oracle",
}

// TestAttemptsSeeTheOpenHost is the suite's own control: where there is no
// wall at all, an ordinary user finds what is planted and gets through.
func TestAttemptsSeeTheOpenHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	inside, _ := split(attemptNames(t))
	for _, r := range probeHost(t, inside) {
		why, excused := blind[r.Probe]
		switch {
		case r.Error != "":
			t.Errorf("%s broke: %s", r.Probe, r.Error)
		case r.Found:
			t.Logf("%s: %s", r.Probe, r.Detail)
		case excused:
			t.Logf("%s found nothing (%s): %s", r.Probe, why, r.Detail)
		default:
			t.Errorf("%s finds nothing on the open host: %s", r.Probe, r.Detail)
		}
	}
}

// probeHost runs attempts as an ordinary user, with no wall.
func probeHost(t *testing.T, names []string) (results []facts.Result) {
	t.Helper()
	f := host.facts
	f.Wall, f.User, f.Home = facts.Process, "user", "/nonexistent"
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "carboy-open-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "facts.json")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// What would change the machine, or call at somebody else's, is not for here.
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "machine" || n == "metadata" })
	cmd := exec.Command(filepath.Join(tools, "probe"), append([]string{"run", file}, names...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), f.EnvName + "=" + f.Marker}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{host.root}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{1}}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("probe: %v\n%s", err, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		var r facts.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		results = append(results, r)
	}
	return results
}
