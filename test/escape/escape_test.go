package escape

import (
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// users that a wall offers.
func users(wall string) []string {
	if wall == facts.Process {
		return []string{"user"}
	}
	return []string{"user", "root"}
}

// TestNothingIsFound is the suite: everything is tried, nothing may be found.
func TestNothingIsFound(t *testing.T) {
	for _, wall := range walls() {
		for _, user := range users(wall) {
			t.Run(wall+"/"+user, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, setting{bin: binary(t), wall: wall, user: user})
				for _, r := range tried(t, w.attempt()) {
					judge(t, r)
				}
				w.survives()
			})
		}
	}
}

func binary(t *testing.T) string {
	t.Helper()
	if carboy == "" {
		t.Skip("CARBOY_BIN is not set: run make escape")
	}
	return carboy
}

// finding begins what says that an attack has succeeded. test/report has no second try
// for it.
const finding = "finding: "

// judge fails for what was found, and for what could not be tried.
func judge(t *testing.T, r facts.Result) {
	t.Helper()
	switch {
	case r.Error != "":
		t.Errorf("%s broke: %s", r.Probe, r.Error)
	case r.Found:
		t.Errorf(finding+"%s found: %s", r.Probe, r.Detail)
	default:
		t.Logf("%s: %s", r.Probe, r.Detail)
	}
}

// survives kills all that a command may kill, and wants the agent to answer.
// Only a wall that holds is treated so: on another, that could be the host.
func (w *world) survives() {
	w.t.Helper()
	w.run(nil, "exec", w.box, "--", "sh", "-c", "kill -9 1; kill -9 -1")
	if got := w.ok("exec", w.box, "--", "echo", "alive"); got != "alive\n" {
		w.t.Errorf("after kill -9 -1 the agent answers %q", got)
	}
}

// TestRootIsRefused holds a wall that offers no root to it.
func TestRootIsRefused(t *testing.T) {
	bin := binary(t)
	for _, wall := range walls() {
		if slices.Contains(users(wall), "root") {
			continue
		}
		t.Run(wall, func(t *testing.T) {
			w := newWorld(t, setting{bin: bin, wall: wall, user: "user"})
			if r := w.run(nil, "create", "--isolation", wall, "--user", "root"); r.code != 125 {
				t.Errorf("create --user root: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			if r := w.run(nil, "exec", "--user", "root", w.box, "--", "true"); r.code != 125 {
				t.Errorf("exec --user root: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}
