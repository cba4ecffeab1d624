package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

const (
	addr    = "127.0.0.1:5410"
	patient = 2 * time.Minute // with a machine that is emulated
	mib     = 1 << 20
)

// daemon is carboy in the machine.
type daemon struct {
	home   string
	log    io.Writer // outlives the subtest that starts it anew
	cmd    *exec.Cmd
	conn   *boxservice.Connector
	client *boxservice.Client
}

func (d *daemon) env() []string {
	return append(os.Environ(), "XDG_STATE_HOME="+d.home+"/state", "XDG_CACHE_HOME="+d.home+"/cache",
		"XDG_CONFIG_HOME="+d.home+"/config", "XDG_RUNTIME_DIR="+d.home+"/run")
}

// serve starts it, and waits until it answers.
func (d *daemon) serve(t *testing.T) {
	t.Helper()
	d.cmd = exec.Command(os.Getenv("CARBOY_BIN"), "langbot", "serve", "--listen", addr)
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = d.env(), d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := http.Get("http://" + addr + "/healthz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the daemon does not answer")
		}
	}
	var err error
	if d.conn, err = boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + addr}); err == nil {
		err = d.conn.Open(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	d.client = d.conn.Client()
}

func (d *daemon) kill(t *testing.T) {
	t.Helper()
	d.conn.Close()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
}

// exec runs a command in a session of the directory, which is to have a hard
// quota where mb is one.
func (d *daemon) exec(t *testing.T, key, dir string, mb int, command string) boxservice.Result {
	t.Helper()
	s := boxservice.NewSpec(key, command)
	s.HostPath, s.WorkspaceQuotaMB, s.TimeoutSec = dir, mb, 60
	if mb > 0 {
		s.Quota = sessions.QuotaHard
	}
	r, err := d.client.Exec(t.Context(), s)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return r
}

// TestBoxOnProject has sessions in directories whose file system holds them to
// their quota.
func TestBoxOnProject(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		t.Skip("TestGuest has a machine for it")
	}
	d := &daemon{home: "/var/tmp/home", log: t.Output()}
	config := `{"box": {"isolation": "process", "allowed_mount_roots": ["/mnt/xfs", "/mnt/ext4", "/srv"]}}`
	err := errors.Join(os.MkdirAll(d.home+"/config/carboy", 0o700), os.MkdirAll(d.home+"/run", 0o700), os.MkdirAll("/srv/plain", 0o777),
		os.WriteFile(d.home+"/config/carboy/config.json", []byte(config), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	d.serve(t)
	for _, system := range []string{"/mnt/xfs", "/mnt/ext4"} {
		t.Run(filepath.Base(system), func(t *testing.T) { d.fills(t, system) })
	}
	if os.Getenv(gvisorEnv) != "" {
		t.Run("gvisor", d.behindGVisor)
	}
	t.Run("plain", func(t *testing.T) {
		s := boxservice.NewSpec("plain", "true")
		s.HostPath, s.WorkspaceQuotaMB, s.Quota = "/srv/plain", 16, sessions.QuotaHard
		if _, err := d.client.Exec(t.Context(), s); boxservice.Class(err) != api.ClassValidation || !strings.Contains(fmt.Sprint(err), "soft") {
			t.Errorf("where it can't be hard: %v", err)
		}
		s.Quota = ""
		r, err := d.client.Exec(t.Context(), s)
		if err != nil || strings.Contains(strings.Join(r.Notices, "\n"), "quota") || d.quota(t, "plain") != sessions.QuotaSoft {
			t.Errorf("got %+v, %v, quota %q", r, err, d.quota(t, "plain"))
		}
	})
	d.kill(t)
}

// behindGVisor has a quota that root's rights would go past, for what is written
// on behalf of a sandbox by a program of the host's.
func (d *daemon) behindGVisor(t *testing.T) {
	const dir = "/mnt/ext4/gvisor"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	s := boxservice.NewSpec("gvisor", fillUp)
	s.HostPath, s.WorkspaceQuotaMB, s.Quota, s.Isolation, s.TimeoutSec = dir, 4, sessions.QuotaHard, "gvisor", 100
	from := time.Now()
	r, err := d.client.Exec(t.Context(), s)
	size := sizeOf(t, dir+"/big")
	t.Logf("%v: %d bytes of 4 MiB, limits %q: %q", time.Since(from).Round(time.Millisecond), size, r.Limits, r.Stderr)
	if err != nil || *r.ExitCode != 1 || size > 4*mib || size < 3*mib {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := d.client.Delete(t.Context(), "gvisor"); err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) quota(t *testing.T, key string) string {
	t.Helper()
	info, err := d.client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return info.Quota
}

// fillUp writes more than there is room for, if there is no more than 16 MiB.
const fillUp = "dd if=/dev/zero of=big bs=64k count=320"

func (d *daemon) fills(t *testing.T, system string) {
	one, two := filepath.Join(system, "one"), filepath.Join(system, "two")
	for _, dir := range []string{one, two} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/old", []byte("old\n"), 0o644), os.Chown(dir, 1000, 1000), os.Chown(dir+"/old", 1000, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Base(system)
	from := time.Now()
	r := d.exec(t, key, one, 16, fillUp)
	size := sizeOf(t, one+"/big")
	t.Logf("%v: exit %d, %d bytes of 16 MiB, limits %q: %q", time.Since(from).Round(time.Millisecond), *r.ExitCode, size, r.Limits, r.Stderr)
	if *r.ExitCode != 1 || size < 15*mib || size > 16*mib || !slices.Contains(r.Limits, "disk") {
		t.Errorf("got %+v, and %d bytes", r, size)
	}
	if !strings.Contains(r.Stderr, "No space left on device") && !strings.Contains(r.Stderr, "quota exceeded") {
		t.Errorf("it was told %q", r.Stderr)
	}
	if got := d.quota(t, key); got != sessions.QuotaHard {
		t.Errorf("the quota is %q", got)
	}
	// The neighbour is unaffected, and the next command answers.
	if r := d.exec(t, key+"-two", two, 0, fillUp+" && rm big"); *r.ExitCode != 0 {
		t.Errorf("beside it: %+v", r)
	}
	if r := d.exec(t, key, one, 16, "cat old; rm big; echo small > small && cat small"); r.Stdout != "old\nsmall\n" {
		t.Errorf("the next: %+v", r)
	}
	if system == "/mnt/ext4" {
		d.loosened(t, key, one)
	} else {
		d.shares(t, key, one)
		// The daemon dies: the next one has the same.
		d.kill(t)
		d.serve(t)
		if r := d.exec(t, key, one, 16, fillUp); *r.ExitCode != 1 || sizeOf(t, one+"/big") > 16*mib {
			t.Errorf("after a kill: %+v", r)
		}
	}
	// Without a session, the directory is its user's alone.
	if err := errors.Join(d.client.Delete(t.Context(), key), d.client.Delete(t.Context(), key+"-two")); err != nil {
		t.Fatal(err)
	}
	if r := d.exec(t, key+"-free", one, 0, fillUp); *r.ExitCode != 0 {
		t.Errorf("lifted: %+v", r)
	}
	if err := d.client.Delete(t.Context(), key+"-free"); err != nil {
		t.Fatal(err)
	}
}

// shares has another session in the directory, with a smaller limit, for a while.
func (d *daemon) shares(t *testing.T, key, dir string) {
	t.Helper()
	d.exec(t, key+"-also", dir, 8, "true")
	if r := d.exec(t, key, dir, 16, fillUp); *r.ExitCode != 1 || sizeOf(t, dir+"/big") > 8*mib {
		t.Errorf("with one of 8 MiB: %+v", r)
	}
	if err := d.client.Delete(t.Context(), key+"-also"); err != nil {
		t.Fatal(err)
	}
	if r := d.exec(t, key, dir, 16, fillUp); *r.ExitCode != 1 || sizeOf(t, dir+"/big") < 15*mib {
		t.Errorf("without it again: %+v", r)
	}
}

// loosened has an operator take the file system's quotas away, where a mount can
// be changed so: nothing runs without what it was promised.
func (d *daemon) loosened(t *testing.T, key, dir string) {
	t.Helper()
	if err := quotaOff(); err != nil {
		t.Fatal(err)
	}
	s := boxservice.NewSpec(key, "true")
	s.HostPath, s.WorkspaceQuotaMB, s.Quota = dir, 16, sessions.QuotaHard
	if _, err := d.client.Exec(t.Context(), s); err == nil || !strings.Contains(err.Error(), "not held to its hard quota any more") {
		t.Errorf("without quotas: %v", err)
	}
	if err := quotaOn(); err != nil {
		t.Fatal(err)
	}
	if r := d.exec(t, key, dir, 16, "echo again"); r.Stdout != "again\n" {
		t.Errorf("with quotas again: %+v", r)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Size
}
