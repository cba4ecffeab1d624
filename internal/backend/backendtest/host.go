package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// ownOwner is the owner of what this process's user makes.
func ownOwner() string { return fmt.Sprintf("uid:%d", os.Geteuid()) }

// processes lists the host's processes that belong to an instance: its id is in
// their cgroup, their command line, their root, or what is mounted for them.
func processes(id string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if belongs(filepath.Join("/proc", e.Name()), id) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func belongs(proc, id string) bool {
	for _, file := range []string{"cgroup", "cmdline", "mountinfo"} {
		text, _ := os.ReadFile(filepath.Join(proc, file)) // it may be gone
		if bytes.Contains(text, []byte(id)) {
			return !zombie(proc)
		}
	}
	for _, link := range []string{"root", "cwd"} {
		to, _ := os.Readlink(filepath.Join(proc, link))
		if strings.Contains(to, id) {
			return true
		}
	}
	return false
}

func zombie(proc string) bool {
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return true // gone by now
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return bytes.HasPrefix(bytes.TrimSpace(rest), []byte("Z"))
}

// traces names what the host still has of an instance.
func traces(id string) []string {
	var found []string
	for _, pid := range processes(id) {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		found = append(found, fmt.Sprintf("process %d: %.120q", pid, cmd))
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, id) {
			found = append(found, "mount: "+strings.TrimSpace(line))
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if b, _ := os.ReadFile(l); bytes.Contains(b, []byte(id)) {
			found = append(found, fmt.Sprintf("loop device: %s %s", l, bytes.TrimSpace(b)))
		}
	}
	return slices.Concat(found, groups(id), strayThreads())
}

// strayThreads names this process's threads that stay in a mount namespace
// where an instance was made: it keeps the instance's disk.
func strayThreads() []string {
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	links, _ := filepath.Glob("/proc/self/task/*/ns/mnt")
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil && ns != own {
			found = append(found, "thread in a mount namespace of its own: "+l)
		}
	}
	return found
}

// groups lists the cgroups of an instance.
func groups(id string) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == id {
			found = append(found, p)
		}
		return nil // what can't be read is not ours
	})
	return found
}

// cpuTime is the processor time that an instance's processes have taken so far.
func cpuTime(id string) time.Duration {
	const tick = 100 // per second, on every Linux
	var sum time.Duration
	for _, pid := range processes(id) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 13 {
			continue // gone by now
		}
		for _, f := range fields[11:13] {
			n, _ := strconv.Atoi(f)
			sum += time.Duration(n) * time.Second / tick
		}
	}
	return sum
}

// killAll kills the instance's processes from outside.
func killAll(t *testing.T, id string) {
	t.Helper()
	pids := processes(id)
	if len(pids) == 0 {
		t.Fatal("the instance has no processes on the host")
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// hostDir is what a caller's right to path came to.
func hostDir(t *testing.T, path string) sandbox.HostDir {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return sandbox.HostDir{Path: path, Dev: st.Dev, Ino: st.Ino, UID: st.Uid, GID: st.Gid}
}

// The owner of trees of the host, where this process may give files away.
const (
	treeUID = 4242
	treeGID = 4243
)

// tree makes a directory of the host with files, of which no name ends in a
// slash, and gives it to somebody who is not the guest's user.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := filepath.Join(tempDir(t), "tree")
	must(t, os.Mkdir(root, 0o755))
	for name, text := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	give(t, root)
	return root
}

func give(t *testing.T, root string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	must(t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, treeUID, treeGID)
	}))
}

// native runs a program on the host, where nothing forbids anything.
func native(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
