package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// content is the content of one volume, by way of the API.
type content struct {
	h         *home
	http      *http.Client
	id, token string
}

// content makes a volume and opens its content.
func (h *home) content(name string) *content {
	h.t.Helper()
	sock := h.dir + "/run/carboy/carboy.sock"
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", sock)
	}}
	h.t.Cleanup(tr.CloseIdleConnections)
	c := &content{h: h, http: &http.Client{Transport: tr}}
	resp, err := c.http.Post("http://unix/volumes", "application/json", strings.NewReader(`{"name":"`+name+`"}`))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct{ VolumeID, Token string }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || v.Token == "" {
		h.t.Fatalf("create volume = %d, %v", resp.StatusCode, err)
	}
	c.id, c.token = v.VolumeID, v.Token
	return c
}

// do asks for an operation. An answer that did not come is status 0.
func (c *content) do(method, op, path string, body io.Reader) (int, string) {
	req, err := http.NewRequestWithContext(c.h.t.Context(), method, "http://unix/volumecontent/"+c.id+"/"+op+"?path="+path, body)
	if err != nil {
		c.h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func (c *content) want(status int, method, op, path, body string) string {
	c.h.t.Helper()
	var got int
	var text string
	patience.Until(10*time.Second, func() bool { // a process that was killed just now may be asked, which says "try again"
		got, text = c.do(method, op, path, strings.NewReader(body))
		return got != http.StatusServiceUnavailable
	})
	if got != status {
		c.h.t.Errorf("%s %s %s = %d %s, want %d", method, op, path, got, text, status)
	}
	return text
}

// process returns the pid of the one that works on the volume, 0 for none.
func (c *content) process() int {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.HasPrefix(raw, []byte("carboy-volume-content\x00")) && bytes.Contains(raw, []byte(c.id)) {
			return pid
		}
	}
	return 0
}

// cutUpload begins an upload, and calls cut in the middle of it.
func (c *content) cutUpload(path string, cut func()) {
	c.h.t.Helper()
	r, w := io.Pipe()
	done := make(chan int)
	go func() {
		status, _ := c.do("PUT", "file", path, r)
		done <- status
	}()
	if _, err := w.Write(make([]byte, 4<<20)); err != nil { // which has come to the process's end, but for what is on the way
		c.h.t.Error(err)
	}
	cut()
	w.CloseWithError(io.ErrUnexpectedEOF)
	if status := <-done; status == http.StatusCreated {
		c.h.t.Error("an upload that was cut is said to be whole")
	}
}

// TestVolume has two sandboxes, behind both walls, share a volume.
func TestVolume(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.ok("volume", "create", "--size", "32m", "shared")
	mount := []string{"--volume", "shared:/mnt/data", "--volume", "shared:/mnt/ro:ro"}
	boxes := map[string]string{}
	for _, wall := range wallNames {
		boxes[wall] = h.create(append(mount, "--isolation", wall)...)
	}
	for writer, w := range boxes {
		h.ok("exec", w, "--", "sh", "-c", "echo "+writer+" >/mnt/data/now")
		for reader, r := range boxes {
			for _, at := range []string{"/mnt/data/now", "/mnt/ro/now"} {
				if got := h.ok("exec", r, "--", "cat", at); got != writer+"\n" {
					t.Errorf("%s wrote %q, %s reads %q", writer, writer, reader, got)
				}
			}
		}
		if r := h.run(nil, "exec", w, "--", "touch", "/mnt/ro/x"); r.code == 0 || !strings.Contains(r.stderr, "Read-only") {
			t.Errorf("%s: a write to :ro = %+v", writer, r)
		}
	}
	for wall, box := range boxes {
		r := h.run(nil, "exec", box, "--", "sh", "-c", "cat /dev/zero >/mnt/data/fill")
		if r.code == 0 || !strings.Contains(r.stderr, "No space left on device") {
			t.Errorf("%s: filling it = %+v", wall, r)
		}
		h.ok("exec", box, "--", "sh", "-c", "echo on >/workspace/on && rm /mnt/data/fill")
	}
	if r := h.run(nil, "volume", "rm", "shared"); r.code != 125 || !strings.Contains(r.stderr, "has it") {
		t.Errorf("removing one that is mounted = %+v", r)
	}
	h.killDaemon()
	for wall, box := range boxes {
		h.ok("exec", box, "--", "grep", "-q", ".", "/mnt/data/now")
		h.ok("stop", box)
		h.ok("start", box)
		h.ok("exec", box, "--", "sh", "-c", "echo again >/mnt/data/"+wall)
	}
	disk, _ := filepath.Glob(h.dir + "/state/carboy/volumes/vol_*/disk.img")
	if len(disk) != 1 {
		t.Fatalf("disks: %q", disk)
	}
	for wall, box := range boxes {
		h.ok("stop", box)
		if err := os.Rename(disk[0], disk[0]+".away"); err != nil {
			t.Fatal(err)
		}
		if r := h.run(nil, "start", box); r.code == 0 || !strings.Contains(r.stderr, "its disk is gone") {
			t.Errorf("%s: a start without the volume's disk = %+v", wall, r)
		}
		if err := os.Rename(disk[0]+".away", disk[0]); err != nil {
			t.Fatal(err)
		}
		h.ok("rm", "-f", box)
	}
	if got := h.ok("run", "--volume", "shared:/mnt/data", "--", "ls", "/mnt/data"); !strings.Contains(got, "gvisor\n") || !strings.Contains(got, "process\n") {
		t.Errorf("what outlived its sandboxes: %q", got)
	}
	h.ok("volume", "rm", "shared")
}

// TestVolumeContent: whoever dies in the middle of a write, no half file has
// its name.
func TestVolumeContent(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.ok("ls") // starts the daemon
	c := h.content("data")
	c.want(201, "PUT", "file", "/kept", "old")
	c.cutUpload("/half", func() {
		if err := syscall.Kill(c.process(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	c.want(404, "GET", "path", "/half", "")
	c.cutUpload("/kept&force=true", h.killDaemon)
	until(t, func() bool { return c.process() == 0 })
	h.ok("ls")
	c.want(404, "GET", "path", "/half", "")
	if got := c.want(200, "GET", "file", "/kept", ""); got != "old" {
		t.Errorf("after the daemon's death in the middle of a write: %q", got)
	}
	if got := h.ok("run", "--volume", "data:/mnt/data", "--", "ls", "-A", "/mnt/data"); got != "kept\n" {
		t.Errorf("there is %q", got)
	}
	h.ok("run", "--volume", "data:/mnt/data", "--", "sh", "-c", "ln -s /etc/shadow /mnt/data/shadow; ln -s / /mnt/data/root")
	for _, path := range []string{"/shadow", "/root/etc/shadow"} {
		if text := c.want(400, "GET", "file", path, ""); strings.Contains(text, "root:") {
			t.Errorf("%s shows the host's file", path)
		}
	}
	pid := c.process()
	confined(t, pid)
	h.ok("volume", "rm", "data")
	if alive(pid) {
		t.Error("a process works on a volume that is removed")
	}
	c.want(404, "GET", "path", "/kept", "")
}

// confined wants the process that works on a volume to be nobody, with rights
// over files alone, a filter, and no network or file system but its own.
func confined(t *testing.T, pid int) {
	t.Helper()
	at := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(at + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "CapPrm:\t000000000000000f\n", "CapEff:\t000000000000000f\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !bytes.Contains(status, []byte(want)) {
			t.Errorf("the process that works on a volume has not %q", want)
		}
	}
	for _, ns := range []string{"net", "mnt", "pid", "ipc", "uts"} {
		theirs, err := os.Readlink(at + "/ns/" + ns)
		ours, oerr := os.Readlink("/proc/self/ns/" + ns)
		if err != nil || oerr != nil || theirs == ours {
			t.Errorf("its %s namespace is %q, %v, %v", ns, theirs, err, oerr)
		}
	}
	mounts, err := os.ReadFile(at + "/mountinfo")
	if err != nil || bytes.Count(mounts, []byte("\n")) != 1 || !bytes.Contains(mounts, []byte("nosuid,nodev,noexec")) {
		t.Errorf("it sees %s, %v", mounts, err)
	}
}

// TestVolumeWithoutRoot: a plain directory, which is said.
func TestVolumeWithoutRoot(t *testing.T) {
	t.Parallel()
	h := newWorld(t).ordinaryHome(carboy)
	r := h.run(nil, "volume", "create", "data")
	if r.code != 0 || !strings.Contains(r.stderr, "its size is not kept to") {
		t.Fatalf("create = %+v", r)
	}
	h.ok("run", "--volume", "data:/mnt/data", "--", "sh", "-c", "id -u >/mnt/data/who; mkdir /mnt/data/d")
	if got := h.ok("run", "--volume", "data:/mnt/data:ro", "--isolation", "process", "--", "stat", "-c", "%u %n", "/mnt/data/who", "/mnt/data"); got != "1000 /mnt/data/who\n1000 /mnt/data\n" {
		t.Errorf("owners: %q", got)
	}
	c := h.content("outside")
	c.want(201, "PUT", "file", "/a/b&force=true&uid=7", "x")
	if text := c.want(200, "GET", "path", "/a/b", ""); !strings.Contains(text, `"uid":7`) {
		t.Errorf("written: %s", text)
	}
	h.ok("volume", "rm", c.id, "data")
	if left, _ := filepath.Glob(h.dir + "/state/carboy/volumes/vol_*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
