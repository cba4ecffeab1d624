package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
)

const (
	answerWait  = 60 * time.Second
	instanceTTL = 3 * time.Hour // even a run that was killed leaves nothing for ever
	shown       = "/bench"      // where instances see the client, and whom to trust
)

// daemon is carboy's, in a home of its own within the world.
type daemon struct {
	c   *client.Client
	dir string // shown to instances
	w   *world
}

// startDaemon starts it, and waits until it answers.
func (w *world) startDaemon(ctx context.Context, carboy string) (_ *daemon, err error) {
	home := filepath.Join(w.dir, "home")
	d := &daemon{w: w, dir: filepath.Join(w.dir, "shown")}
	for _, dir := range []string{"state", "run", "cache", "config/carboy"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			return nil, err
		}
	}
	if err := d.show(); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"mount_dirs": []string{d.dir}, "idle_exit": "5m", "pool": 0, "resolvers": []string{addrDNS + ":53"},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, "config/carboy/config.json"), config, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(home, "log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(carboy, "daemon", "run") // not the context's: stop removes what it made first
	cmd.Env = append(os.Environ(), "HOME="+home, "SSL_CERT_FILE="+w.trusted, "SSL_CERT_DIR=/nonexistent",
		"XDG_STATE_HOME="+home+"/state", "XDG_RUNTIME_DIR="+home+"/run", "XDG_CACHE_HOME="+home+"/cache", "XDG_CONFIG_HOME="+home+"/config")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if d.c, err = client.New(client.Options{Socket: filepath.Join(home, "run/carboy/carboy.sock")}); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.later(func() error { return d.stop(cmd) })
	ctx, cancel := context.WithTimeoutCause(ctx, answerWait, errors.New("the daemon does not answer"))
	defer cancel()
	return d, until(ctx, func() bool { _, err := d.c.Version(ctx); return err == nil })
}

// show puts into the directory that instances see what they need.
func (d *daemon) show() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{exe: "gate", d.w.roots: "roots.pem"} {
		raw, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(d.dir, to), raw, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// until waits for a fact that nobody announces.
func until(ctx context.Context, fact func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// stop removes every instance, and ends the daemon.
func (d *daemon) stop(cmd *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	list, err := d.c.List(ctx, client.ListOptions{})
	errs := []error{err}
	for i := range list {
		errs = append(errs, d.c.Remove(ctx, list[i].ID, true))
	}
	d.c.Close()
	errs = append(errs, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait() // its log says more
	return errors.Join(errs...)
}

// rules are what instances with a network may do: one host is read, one is not.
func rules() *api.Policy {
	return &api.Policy{Rules: []api.PolicyRule{
		{ID: "read", Hosts: []string{nameServer}},
		{ID: "unread", Hosts: []string{nameUnread}, Protocol: "tls"},
	}}
}

// create makes an instance, with a network or without.
func (d *daemon) create(ctx context.Context, wall string, network bool) (string, error) {
	req := api.CreateRequest{
		Isolation: wall, TTLMillis: instanceTTL.Milliseconds(), OnExpiry: "remove",
		Mounts: []api.Mount{{Source: d.dir, Target: shown, ReadOnly: true}},
	}
	if network {
		req.Policy = rules()
	}
	sb, err := d.c.Create(ctx, req)
	if err != nil {
		return "", fmt.Errorf("create %s: %w", wall, err)
	}
	return sb.ID, nil
}

// exec runs the client in an instance.
func (d *daemon) exec(ctx context.Context, id string, in io.Reader, out io.Writer, args ...string) error {
	var errs bytes.Buffer
	exit, err := d.c.Exec(ctx, id, client.ExecOptions{
		Command: &guestv1.Command{Argv: append([]string{shown + "/gate", roleLoad}, args...)}, Stdin: in, Stdout: out, Stderr: &errs,
	})
	if err == nil && exit.GetCode() != 0 {
		err = fmt.Errorf("exit code %d: %s", exit.GetCode(), bytes.TrimSpace(errs.Bytes()))
	}
	return err
}
