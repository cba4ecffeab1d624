package gvisor_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
)

// status is a line of the state of an instance's sentry.
func status(t *testing.T, state, id, line string) string {
	t.Helper()
	var instance struct {
		Processes []procid.ID `json:"processes"`
	}
	raw, err := os.ReadFile(filepath.Join(state, "boxes/gvisor", id, "box.json"))
	if err == nil {
		err = json.Unmarshal(raw, &instance)
	}
	if err != nil || len(instance.Processes) != 2 {
		t.Fatalf("%d processes, %v", len(instance.Processes), err)
	}
	raw, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", instance.Processes[0].PID))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	t.Fatalf("its state has no line %s", line)
	return ""
}

// TestSentryHasNothingOfOthers: neither its user nor a group of a sentry is
// another's, and the host's device that is its streams stays the host's.
func TestSentryHasNothingOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	// In mounts of its own, and with a group more: the thread ends with the test.
	runtime.LockOSThread()
	null := filepath.Join(t.TempDir(), "null")
	if err := unix.Mknod(null, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Fatal(err)
	}
	for _, m := range [][2]string{{"", "/"}, {null, os.DevNull}} {
		flags := uintptr(unix.MS_REC | unix.MS_PRIVATE)
		if m[0] != "" {
			flags = unix.MS_BIND
		}
		if err := unix.Mount(m[0], m[1], "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := syscall.Getgroups()
	if err == nil {
		err = syscall.Setgroups([]int{27})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setgroups(groups) })
	state := stateDir(t)
	b := open(t, state)
	users := map[string]bool{}
	for _, id := range []string{"sb_one", "sb_two"} {
		start(t, b, sandboxOf(id))
		ids := strings.Fields(status(t, state, id, "Uid"))
		users[ids[0]] = true
		if ids[0] == "65534" || ids[0] != ids[1] || ids[0] != strings.Fields(status(t, state, id, "Gid"))[0] {
			t.Errorf("%s: the sentry's users are %v", id, ids)
		}
		if got := status(t, state, id, "Groups"); got != "" {
			t.Errorf("%s: the sentry is in groups %s", id, got)
		}
	}
	if len(users) != 2 {
		t.Errorf("the sentries of two instances run as %v", users)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(os.DevNull, &st); err != nil || st.Uid != 0 || st.Gid != 0 {
		t.Errorf("%s is %d:%d's: %v", os.DevNull, st.Uid, st.Gid, err)
	}
}
