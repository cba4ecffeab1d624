package escape

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/test/escape/facts"
	"github.com/carboy-sandbox/carboy/test/patience"
)

var inode = regexp.MustCompile(`\[\d+\]`)

// mode is a way to make a box, and the user's trees that it shows.
type mode struct {
	name   string
	flags  []string
	shares []share
}

// modes of a world. A tree's root is known only once the machine is asked.
func (w *world) modes() []mode {
	w.t.Helper()
	for _, dir := range []string{"cow", "rw", "ro", "image/bin", "image/etc"} {
		if err := os.MkdirAll(w.path(dir), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	err := errors.Join(copyFile(filepath.Join(tools, "probe"), w.path("image/bin/probe")),
		os.WriteFile(w.path("image/etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\n"), 0o644),
		os.WriteFile(w.path("cow/file"), []byte("x\n"), 0o644), os.WriteFile(w.path("rw/file"), []byte("x\n"), 0o644))
	if err != nil {
		w.t.Fatal(err)
	}
	w.ok("volume", "create", "kept")
	w.ok("volume", "create", "desk")
	base := strings.TrimSpace(w.ok("create", "--isolation", w.wall))
	w.ok("exec", base, "--", "sh", "-c", "echo x >/workspace/file; echo x >/home/user/file")
	snap := strings.TrimSpace(w.ok("snapshot", "create", base))
	w.ok("rm", "-f", base)
	rw, ro := share{"/rw", w.path("rw")}, share{"/ro", w.path("ro")}
	return []mode{
		{"plain", nil, nil},
		{"copy-on-write", []string{"--workspace", w.path("cow")}, nil},
		{"own-tree", []string{"--workspace", w.path("rw") + ":rw", "--mount", w.path("ro") + ":/ro:ro"}, []share{{"/workspace", rw.root}, ro}},
		{"read-only-tree", []string{"--workspace", w.path("ro") + ":ro", "--mount", w.path("rw") + ":/rw"}, []share{{"/workspace", ro.root}, rw}},
		{"volumes", []string{"--volume", "kept:/kept", "--volume", "desk:/workspace"}, []share{{"/kept", "/data"}, {"/workspace", "/data"}}},
		{"image", []string{"--image", w.path("image")}, nil},
		{"network", []string{"--allow", "name.example"}, nil},
		{"snapshot", []string{"--snapshot", snap}, nil},
	}
}

// TestWhatGofersSee holds all that a box's processes can reach of the host to
// closed lists: file servers, guest agents and commands, by their mounts, by
// what lies there, and by their open files. None of it is the control plane's.
func TestWhatGofersSee(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to look into other processes")
	}
	for _, wall := range walls() {
		t.Run(wall, func(t *testing.T) {
			w := newWorld(t, setting{bin: binary(t), wall: wall, user: "user", alone: true})
			for _, m := range w.modes() {
				t.Run(m.name, func(t *testing.T) {
					box := strings.TrimSpace(w.ok(append([]string{"create", "--isolation", wall}, m.flags...)...))
					defer w.run(nil, "rm", "-f", box)
					waiting(t, w, box, m.name == "image")
					answer(t, w.look(w.boxDir(box), full && m.name == "plain", m.shares...))
				})
			}
		})
		t.Run(wall+"/warm", func(t *testing.T) { seesWarm(t, wall) })
	}
}

// waiting has a command wait in a box until the test's end.
func waiting(t testing.TB, w *world, box string, bare bool) {
	t.Helper()
	args := []string{"sh", "-c", "echo here; read line"}
	if bare { // there is no shell
		args = []string{"/bin/probe", "hold", "sight"}
	}
	cmd := exec.Command(w.bin, append([]string{"exec", "-i", box, "--"}, args...)...)
	cmd.Env, cmd.Dir = w.env, w.dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal("the command does not start: ", err)
	}
}

// answer prints what was seen, and fails for what should not have been.
func answer(t *testing.T, s *sight) {
	t.Helper()
	t.Logf("\n%s", strings.Join(s.lines, "\n"))
	for _, f := range s.found {
		t.Error(f)
	}
}

// seesWarm looks at a box that was started for nobody.
func seesWarm(t *testing.T, wall string) {
	w := newWorld(t, setting{bin: binary(t), wall: wall, user: "user", alone: true, pool: 1})
	name := strings.TrimSpace(w.ok("create", "--isolation", wall)) // that kind is kept warm from then on
	removed := w.boxDir(name)
	w.ok("rm", "-f", name)
	deadline := time.NewTimer(patience.For(time.Minute))
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if dir := w.warm(removed); dir != "" {
			answer(t, w.look(dir, false))
			return
		}
		select {
		case <-deadline.C:
			t.Fatal("no box is warm")
		case <-tick.C:
		}
	}
}

// warm is the directory of a box that is ready and nobody's, and not one that was removed and
// may be there still.
func (w *world) warm(removed string) string {
	w.t.Helper()
	var st struct {
		PoolReady int `json:"pool_ready"`
	}
	if json.Unmarshal([]byte(w.ok("daemon", "status", "--json")), &st) != nil || st.PoolReady == 0 {
		return ""
	}
	all, _ := filepath.Glob(filepath.Join(w.dir, "state/carboy/boxes", w.wall, "sb_*"))
	for _, dir := range all {
		_, err := os.Stat(filepath.Join(dir, "box.json"))
		if err == nil && dir != removed && w.run(nil, "inspect", filepath.Base(dir)).code != 0 {
			return dir
		}
	}
	return ""
}

// TestSightNotices seeds the weakness that the lists are for: the same look
// then finds the agent's socket and the copy of its configuration.
func TestSightNotices(t *testing.T) {
	bin := weakened(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to look into other processes")
	}
	for _, wall := range walls() {
		t.Run(wall, func(t *testing.T) {
			w := newWorld(t, setting{bin: bin, wall: wall, user: "user", alone: true, weaken: []weak.Weakness{weak.ControlShared}})
			box := strings.TrimSpace(w.ok("create", "--isolation", wall))
			defer w.run(nil, "rm", "-f", box)
			waiting(t, w, box, false)
			s := w.look(w.boxDir(box), false)
			who := gofer
			if wall == facts.Process {
				who = agent
			}
			text := strings.Join(s.found, "\n")
			t.Log(text)
			for _, want := range []string{"has a mount that is in no list: /run/carboy", "agent.sock is a socket", "/config.json is "} {
				if !strings.Contains(text, who+": ") || !strings.Contains(text, want) {
					t.Errorf("%s: nobody notices %q", who, want)
				}
			}
		})
	}
}
