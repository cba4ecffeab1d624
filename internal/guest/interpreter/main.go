package interpreter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Exit codes of Main.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitMissing = 78 // the image has not what it takes: trying again is of no use
)

const (
	grace       = 2 * time.Second // for answers under way, at the end
	headTimeout = 10 * time.Second
	waitEvery   = 5 * time.Millisecond
	maxAnswer   = 4 << 10
)

// Main is the program: it serves until ctx ends, or with --wait waits for one
// that serves. It returns the exit code.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet("carboy-code-interpreter", flag.ContinueOnError)
	fs.SetOutput(stderr)
	listen := fs.String("listen", ":"+strconv.Itoa(port), "serve on `address`")
	wait := fs.Duration("wait", 0, "serve nothing; wait up to `duration` for the server on this machine")
	if err := fs.Parse(args); err != nil || fs.NArg() > 0 {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	run := func() error { return serve(ctx, *listen, slog.New(slog.NewTextHandler(stderr, nil))) }
	if *wait > 0 {
		run = func() error { return await(ctx, *listen, *wait) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(stderr, "carboy-code-interpreter:", err)
		var missing *missingError
		if errors.As(err, &missing) {
			return exitMissing
		}
		return exitFailed
	}
	return exitOK
}

// serve serves, and starts the first kernel meanwhile.
func serve(ctx context.Context, listen string, log *slog.Logger) error {
	dir, err := os.MkdirTemp("", "carboy-ci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := New(Options{Dir: dir, Env: os.Environ(), Log: log})
	if err != nil {
		return err
	}
	defer s.Close()
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: headTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	served, started := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	go func() { started <- s.Start(ctx) }()
	for err == nil && ctx.Err() == nil {
		select {
		case err = <-served:
			served <- http.ErrServerClosed
		case err = <-started:
			started = nil
		case <-ctx.Done():
		}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_ = srv.Shutdown(end)
	srv.Close()
	<-served
	return err
}

// await waits until the server's first kernel runs.
func await(ctx context.Context, listen string, limit time.Duration) error {
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	url := "http://" + net.JoinHostPort("127.0.0.1", port) + "/health"
	for {
		last := healthy(ctx, url)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", limit, last)
		case <-time.After(waitEvery):
		}
	}
}

func healthy(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
