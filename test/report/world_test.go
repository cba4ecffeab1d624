package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// leaves are commands of a test that leaves something behind: a process without a parent, a
// file, a loop device, an object of System V's IPC, a file of shared memory, and a cgroup
// that has long been there. It says where its directory is.
const leaves = `
	setsid sleep 98765 &
	truncate -s 1M "$TMPDIR/disk"
	losetup --find "$TMPDIR/disk"
	ipcmk --queue >&2
	echo x >/dev/shm/carboy-left
	for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do
		[ ! -e "$at/cgroup.procs" ] || { mkdir -p "$at/carboy/` + group + `"; touch -d yesterday "$at/carboy/` + group + `"; }
	done
	echo "$TMPDIR"
`

const group = "planted-98765"

// worldOf is a command in a world of the directory.
func worldOf(worlds, script string) *exec.Cmd {
	cmd := exec.Command("../../scripts/world.sh", "sh", "-euc", script)
	cmd.Env = append(os.Environ(), "CARBOY_WORLDS="+worlds, "CARBOY_GROUPS=*/carboy/"+group+"*")
	cmd.Stderr = os.Stderr
	return cmd
}

// left names what of leaves is there, but for queues that others had before.
func left(t *testing.T, worlds string, before ...string) (found []string) {
	t.Helper()
	files, _ := filepath.Glob(worlds + "/cw.*/*")
	groups, _ := filepath.Glob("/sys/fs/cgroup/carboy/" + group)
	unified, _ := filepath.Glob("/sys/fs/cgroup/unified/carboy/" + group)
	found = append(append(append(found, files...), groups...), unified...)
	for _, argv := range [][]string{{"losetup", "--list", "--noheadings", "--output", "BACK-FILE"}, {"ps", "-eo", "args"}, {"ipcs", "--queues"}, {"ls", "/dev/shm"}} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatal(argv, err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, worlds+"/") && argv[0] == "losetup" || strings.HasPrefix(line, "sleep 98765") || strings.HasPrefix(line, "0x") || strings.Contains(line, "carboy-left") {
				found = append(found, argv[0]+" "+line)
			}
		}
	}
	return slices.DeleteFunc(found, func(s string) bool { return slices.Contains(before, s) })
}

// inUse has a process in a group, beside an empty one of yesterday, which no world removes.
func inUse(t *testing.T, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	busy, empty := filepath.Join(dir, "busy"), filepath.Join(dir, "empty")
	must(os.MkdirAll(busy, 0o755))
	must(os.MkdirAll(empty, 0o755))
	sleeps := exec.Command("sleep", "1000")
	must(sleeps.Start())
	defer func() {
		_ = sleeps.Process.Kill()
		_ = sleeps.Wait()
		for _, d := range []string{busy, empty, dir} {
			_ = os.Remove(d)
		}
	}()
	must(os.WriteFile(filepath.Join(busy, "cgroup.procs"), []byte(strconv.Itoa(sleeps.Process.Pid)), 0o600))
	yesterday := time.Now().Add(-24 * time.Hour)
	for _, d := range []string{busy, empty, dir} {
		must(os.Chtimes(d, yesterday, yesterday))
	}
	must(worldOf(t.TempDir(), "true").Run())
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("a group beside one with a process: %v", err)
	}
}

// What a run leaves behind ends with it; of one that is killed, with the next.
func TestWorld(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	before := left(t, "/nonexistent")
	t.Run("its-end", func(t *testing.T) {
		worlds := t.TempDir()
		err := worldOf(worlds, leaves+"exit 7").Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("the command's exit code is 7: %v", err)
		}
		if got := left(t, worlds, before...); slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "/sys/fs/cgroup/") }) {
			t.Errorf("there are %q", got)
		}
	})
	t.Run("groups-in-use", func(t *testing.T) {
		for _, at := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
			if _, err := os.Stat(at + "/cgroup.procs"); err == nil {
				inUse(t, filepath.Join(at, "carboy", group))
			}
		}
	})
	t.Run("killed", func(t *testing.T) {
		worlds := t.TempDir()
		killed := worldOf(worlds, leaves+"exec sleep 98765")
		out, err := killed.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 4096)
		if _, err := out.Read(said); err != nil {
			t.Fatal(err)
		}
		during := left(t, worlds, before...)
		second := worldOf(worlds, "true")
		if err := second.Run(); err != nil {
			t.Fatal(err)
		}
		if got := left(t, worlds, before...); len(got) != len(during) || len(got) < 3 {
			t.Errorf("beside a world that stands another one removes: there were %q, there are %q", during, got)
		}
		if err := killed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = killed.Wait()
		if !patience.Until(10*time.Second, func() bool {
			return !strings.Contains(strings.Join(left(t, worlds, before...), "\n"), "sleep 98765")
		}) {
			t.Errorf("it is killed, and there are %q", left(t, worlds, before...))
		}
		if len(left(t, worlds, before...)) == 0 {
			t.Error("a killed world leaves nothing: what the next one removes is not seen")
		}
		if err := worldOf(worlds, "true").Run(); err != nil {
			t.Fatal(err)
		}
		if got := left(t, worlds, before...); len(got) > 0 {
			t.Errorf("after the next there are %q", got)
		}
	})
}
