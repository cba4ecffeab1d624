package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

const (
	startWait = 60 * time.Second
	stopWait  = 60 * time.Second
	poolWait  = 60 * time.Second
	poll      = 5 * time.Millisecond

	// sandboxTTL and idleExit see to it that even a run which was killed leaves
	// nothing that runs for ever.
	sandboxTTL = 3 * time.Hour
	idleExit   = "5m"
)

// daemon is one of carboy's own, in a home of its own.
type daemon struct {
	w   *world
	dir string
	env []string
	cmd *exec.Cmd
	end chan struct{}  // closed once it has ended
	c   *client.Client // as the daemon's own user
	by  *client.Client // as the user who makes sandboxes
}

// daemonSetup is how a daemon differs from one that keeps nothing warm.
type daemonSetup struct {
	name   string         // also of its directory
	args   []string       // nil: daemon run
	env    []string       // on top of this process's own
	config map[string]any // on top of what all have
}

// cold returns the daemon that keeps nothing warm.
func (w *world) cold(ctx context.Context) (*daemon, error) {
	return once(w, "daemon", func() (*daemon, error) { return w.startDaemon(ctx, daemonSetup{name: "cold"}) })
}

// startDaemon starts a daemon and waits until it answers. It is taken away at
// the end of what is going on.
func (w *world) startDaemon(ctx context.Context, s daemonSetup) (_ *daemon, err error) {
	d := &daemon{w: w, dir: filepath.Join(w.dir, s.name), end: make(chan struct{}), env: slices.Clone(s.env)}
	for _, dir := range []string{"state", "run", "cache", "config/carboy"} {
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o700); err != nil {
			return nil, err
		}
	}
	for _, v := range [][2]string{{"STATE_HOME", "state"}, {"RUNTIME_DIR", "run"}, {"CACHE_HOME", "cache"}, {"CONFIG_HOME", "config"}} {
		d.env = append(d.env, "XDG_"+v[0]+"="+filepath.Join(d.dir, v[1]))
	}
	config := map[string]any{"mount_dirs": []string{w.dir}, "idle_exit": idleExit, "pool": 0}
	maps.Copy(config, s.config)
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.dir, "config/carboy/config.json"), text, 0o600); err != nil {
		return nil, err
	}
	if d.c, err = client.New(client.Options{Socket: filepath.Join(d.dir, "run/carboy/carboy.sock")}); err != nil {
		return nil, err
	}
	if s.args == nil {
		s.args = []string{"daemon", "run"}
	}
	if err := d.launch(s.args); err != nil {
		return nil, err
	}
	d.by = d.c
	w.later("the "+s.name+" daemon", d.stop)
	return d, d.await(ctx)
}

// startWarm starts a daemon with a pool. Sandboxes of it are made over TCP by a
// holder of a key: instances that show a user the toolchains in their home are
// never kept warm, and a key has no home.
func (w *world) startWarm(ctx context.Context) (*daemon, error) {
	secret, hash, err := key.New(rand.Reader)
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(key.Key{ID: "bench", Hash: hash, HostImage: true})
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(w.dir, "keys")
	if err := os.WriteFile(keys, append(line, '\n'), 0o600); err != nil {
		return nil, err
	}
	d, err := w.startDaemon(ctx, daemonSetup{name: "warm", config: map[string]any{
		"pool": poolSize, "listen": "127.0.0.1:0", "api_key_file": keys,
	}})
	if err != nil {
		return nil, err
	}
	st, err := d.c.Status(ctx)
	if err != nil {
		return nil, err
	}
	if len(st.Listen) != 1 {
		return nil, fmt.Errorf("the daemon listens on %d TCP addresses", len(st.Listen))
	}
	d.by, err = client.New(client.Options{URL: "http://" + st.Listen[0], Key: secret})
	return d, err
}

// launch starts the process, in a session of its own, as every daemon is.
func (d *daemon) launch(args []string) error {
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// The context of a group must not end it: see stop.
	d.cmd = exec.Command(d.w.carboy, args...)
	d.cmd.Env = append(os.Environ(), d.env...)
	d.cmd.Stderr = log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.w.start(d.cmd); err != nil {
		return err
	}
	go func() {
		defer close(d.end)
		_ = d.w.wait(d.cmd) // its log says more
	}()
	return nil
}

// await waits until the daemon answers.
func (d *daemon) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, errors.New("the daemon does not answer"))
	defer cancel()
	return every(ctx, func() (bool, error) {
		select {
		case <-d.end:
			return false, fmt.Errorf("the daemon ended before it answered%s", d.said())
		default:
		}
		_, err := d.c.Version(ctx)
		return err == nil, nil
	})
}

// said is what the daemon's log ends with.
func (d *daemon) said() string {
	b, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return (&tail{b: []byte(lines[len(lines)-1])}).String()
}

// every calls f until it says true or an error, or ctx ends.
func every(ctx context.Context, f func() (bool, error)) error {
	t := time.NewTicker(poll)
	defer t.Stop()
	for {
		ok, err := f()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// stop removes every sandbox and ends the daemon.
func (d *daemon) stop(ctx context.Context) error {
	defer d.c.Close()
	defer d.by.Close()
	select {
	case <-d.end:
		return fmt.Errorf("it had ended before it was told to%s", d.said())
	default:
	}
	err := d.empty(ctx)
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	err = errors.Join(err, unix.Kill(d.cmd.Process.Pid, unix.SIGTERM))
	select {
	case <-d.end:
	case <-ctx.Done():
		err = errors.Join(err, errors.New("it does not end"), unix.Kill(d.cmd.Process.Pid, unix.SIGKILL))
		<-d.end
	}
	return err
}

// empty removes every sandbox.
func (d *daemon) empty(ctx context.Context) error {
	list, err := d.by.List(ctx, client.ListOptions{})
	errs := []error{err}
	for i := range list {
		if err := d.by.Remove(ctx, list[i].ID, true); client.KindOf(err) != client.NotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// create makes a sandbox.
func (d *daemon) create(ctx context.Context, req api.CreateRequest) (string, error) {
	req.TTLMillis = sandboxTTL.Milliseconds()
	req.OnExpiry = "remove"
	sb, err := d.by.Create(ctx, req)
	if err != nil {
		return "", err
	}
	return sb.ID, nil
}

// exec runs a command in a sandbox, and refuses one that fails.
func (d *daemon) exec(ctx context.Context, id string, env map[string]string, argv ...string) (string, error) {
	var out, errs tail
	exit, err := d.by.Exec(ctx, id, client.ExecOptions{
		Command: &guestv1.Command{Argv: argv, Env: env}, Stdout: &out, Stderr: &errs,
	})
	if err != nil {
		return "", err
	}
	if exit.GetCode() != 0 {
		return "", fmt.Errorf("%s: exit code %d%s", argv[0], exit.GetCode(), &errs)
	}
	return string(out.b), nil
}

// filled waits until as many instances are warm as are to be.
func (d *daemon) filled(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, poolWait, errors.New("the pool does not fill"))
	defer cancel()
	return every(ctx, func() (bool, error) {
		st, err := d.c.Status(ctx)
		return err == nil && st.PoolSize > 0 && st.PoolReady >= st.PoolSize, err
	})
}

// cpu returns the processor time of the daemon and of all that it started.
func (d *daemon) cpu() (time.Duration, error) {
	all, err := readProcesses()
	if err != nil {
		return 0, err
	}
	return cpuTime(all, d.cmd.Process.Pid, threadTime), nil
}
