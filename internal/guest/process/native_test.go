package process_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// native is a world as on the host's kernel: commands are born in groups of
// version 1, and end by one of version 2.
func native(t *testing.T) (w *world, groups []string) {
	counts, _ := limited(t)
	counts.PIDs = 20
	groups = []string{filepath.Dir(counts.OOMFile), filepath.Dir(counts.PIDsFile)}
	var tasks []string
	for _, dir := range groups {
		tasks = append(tasks, dir+"/tasks")
	}
	return open(t, setup{cgroups: true, counts: counts, jail: jail.Config{Tasks: tasks, Strict: true}}), groups
}

func TestNativeMemoryLimit(t *testing.T) {
	w, groups := native(t)
	if _, err := w.start("other", sh("echo up; exec sleep 1000"), until("up")); err != nil {
		t.Fatal(err)
	}
	e := w.run("hog", sh("exec "+eat)).exit
	if e.GetReason() != guestv1.Reason_REASON_OUT_OF_MEMORY || e.GetCode() != 137 {
		t.Errorf("hog: %v", e)
	}
	if w.get("other").GetExit() != nil {
		t.Error("the hog took another command with it")
	}
	if got := w.run("next", sh("echo on")).stdout.String(); got != "on\n" {
		t.Errorf("the next command: %q", got)
	}
	w.signal("other", 9, true, "me")
	for _, dir := range groups { // one thread of this process, and no more
		b, err := os.ReadFile(dir + "/tasks")
		if err != nil || len(strings.Fields(string(b))) != 1 {
			t.Errorf("%s/tasks = %q, %v", dir, b, err)
		}
		if b, err := os.ReadFile(dir + "/cgroup.procs"); err != nil || len(strings.Fields(string(b))) > 1 {
			t.Errorf("%s/cgroup.procs = %q, %v", dir, b, err)
		}
	}
}

func TestNativePIDLimit(t *testing.T) {
	w, groups := native(t)
	// The thread that forks commands counts, so a host allows for it. Here it
	// leaves one fewer.
	r := w.run("bomb", sh("i=1; trap 'echo $i' EXIT; while :; do sleep 1000 & i=$((i+1)); done"))
	if got := strings.TrimSpace(r.stdout.String()); got != "19" || !slices.Equal(r.exit.GetLimits(), []string{"pids"}) {
		t.Errorf("%s processes, want 19: %v", got, r.exit)
	}
	b, err := os.ReadFile(groups[1] + "/cgroup.procs")
	if err != nil || len(strings.Fields(string(b))) > 1 {
		t.Errorf("left: %q, %v", b, err)
	}
	if got := w.run("next", sh("echo on")).stdout.String(); got != "on\n" {
		t.Errorf("the next command: %q", got)
	}
}

// A bomb that others wait beside: the room it leaves is theirs again once it
// is killed, and starting one more meanwhile says why it can't be.
func TestNativeBombFillsTheRoom(t *testing.T) {
	w, _ := native(t)
	bomb := sh("trap 'echo full; exec sleep 1000' EXIT; while :; do sleep 1000 & done")
	if _, err := w.start("bomb", bomb, until("full")); err != nil {
		t.Fatal(err)
	}
	e := w.run("more", sh("true")).exit
	if e.GetReason() != guestv1.Reason_REASON_NOT_STARTED || e.GetCode() != 126 || !slices.Equal(e.GetLimits(), []string{"pids"}) {
		t.Errorf("one more: %v", e)
	}
	w.signal("bomb", 9, true, "me")
	if e := w.run("next", sh("true")).exit; e.GetCode() != 0 {
		t.Errorf("after the bomb: %v", e)
	}
}
