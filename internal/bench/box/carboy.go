package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

const startTime = 30 * time.Second

// startServer runs carboy langbot serve with a home of its own below dir.
func startServer(ctx context.Context, carboy, dir, wall string, pool int) (*subject, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	env := os.Environ()
	for _, name := range []string{"STATE_HOME", "CACHE_HOME", "CONFIG_HOME", "RUNTIME_DIR"} {
		sub := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(sub, "carboy"), 0o700); err != nil {
			return nil, err
		}
		env = append(env, "XDG_"+name+"="+sub)
	}
	config, err := json.Marshal(map[string]any{"pool": pool, "box": map[string]any{"isolation": wall}})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "CONFIG_HOME", "carboy", "config.json"), config, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(carboy, "langbot", "serve", "--listen", addr)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			return err
		}
		return nil
	}
	conn, err := connect(ctx, addr)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	name := "carboy " + wall + ", cold"
	if pool > 0 {
		name = "carboy " + wall + ", from the pool"
	}
	c := conn.Client()
	return &subject{
		name: name, many: pool > 0,
		create: func(ctx context.Context, id string) error {
			_, err := c.Create(ctx, boxservice.NewSpec(id, ""))
			return err
		},
		exec: func(ctx context.Context, id, text, want string) error {
			spec := boxservice.NewSpec(id, text)
			spec.TimeoutSec = 300
			res, err := c.Exec(ctx, spec)
			if err == nil && (res.Stdout != want || res.Status != sessions.StatusCompleted) {
				err = fmt.Errorf("%s: %s %q %q, want %q", text, res.Status, res.Stdout, res.Stderr, want)
			}
			return err
		},
		remove: func(ctx context.Context, id string) error { return c.Delete(ctx, id) },
		close:  func() error { return errors.Join(c.Shutdown(context.WithoutCancel(ctx)), conn.Close(), end()) },
	}, nil
}

// connect waits for the server to answer.
func connect(ctx context.Context, addr string) (*boxservice.Connector, error) {
	conn, err := boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + addr})
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(startTime)
	_ = conn.Open(ctx) // it goes on trying
	for {
		state, err := conn.State()
		if state == boxservice.Connected {
			return conn, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("carboy at %s does not answer: %w", addr, err), conn.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
