package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/image/login"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

func TestMain(m *testing.M) {
	role.Become(jail.Roles()) // git, which a fetch reads with
	testscript.Main(m, map[string]func(){
		"carboy": func() { os.Exit(carboy()) },
		"fake":   func() { os.Exit(askFake()) },
	})
}

// carboy is the program that the scripts run: the real command line and
// client, with the fake daemon at CARBOY_FAKE.
func carboy() int {
	socket := os.Getenv("CARBOY_FAKE")
	return cli.Main(context.Background(), os.Args[1:], cli.Env{
		Login: login.Find,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: os.LookupEnv,
		Now:       func() time.Time { return created.Add(90 * time.Minute) },
		StateDir:  os.Getenv("CARBOY_STATE"),
		AgentsDir: os.Getenv("CARBOY_AGENTS"),
		ConfigDir: os.Getenv("CARBOY_CONFIG"),
		Version:   "v1.2.3",
		Connect: func(_ context.Context, start bool, notice func(string)) (*client.Client, error) {
			if late := os.Getenv("CARBOY_LATE"); late != "" {
				socket = late + ".not-there"
				if start {
					notice("started the daemon")
					socket = late
				}
			}
			return client.New(client.Options{Socket: socket})
		},
		Gone: func(context.Context) error {
			if os.Getenv("CARBOY_LEAVING") != "" {
				return sandbox.Errorf(sandbox.Unavailable, "its process was waited for")
			}
			return nil
		},
		Survey: func(_ context.Context, config bool) (uninstall.Survey, error) {
			return fakeHome(config), nil
		},
		Uninstall: func(_ context.Context, o cli.UninstallOptions) error {
			_, err := fmt.Fprintf(os.Stderr, "uninstalled: %+v\n", o)
			return err
		},
		Serve: func(_ context.Context, o cli.ServeOptions) error {
			if o.LangBot != nil {
				return sandbox.Errorf(sandbox.Unsupported, "would serve Box: %+v", *o.LangBot)
			}
			return sandbox.Errorf(sandbox.Unsupported, "would serve: %+v", o)
		},
	})
}

// fakeHome is what the home of the scripts holds: nothing, where CARBOY_EMPTY says so.
func fakeHome(config bool) uninstall.Survey {
	s := uninstall.Survey{Places: []uninstall.Place{}, Left: []string{}}
	if os.Getenv("CARBOY_EMPTY") != "" {
		return s
	}
	s.Sandboxes, s.Volumes, s.Secrets = 2, 1, true
	s.Places = append(s.Places, uninstall.Place{Path: "/home/me/.local/state/carboy", Bytes: 3 << 20, Unseen: true})
	if !config {
		s.Left = append(s.Left, "/home/me/.config/carboy/config.json")
	}
	return s
}

// askFake prints what the fake daemon at CARBOY_FAKE answers to its argument.
func askFake() int {
	hc := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", os.Getenv("CARBOY_FAKE"))
	}}}
	resp, err := hc.Get("http://unix/fake/" + os.Args[1])
	if err == nil {
		_, err = io.Copy(os.Stdout, resp.Body)
	}
	if err != nil {
		return 1
	}
	return 0
}

// raceOptions spare each of many short processes the second that a race
// detector waits at its end.
const raceOptions = "atexit_sleep_ms=0"

// TestScripts runs the command line as its users do.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"code": code, "stdout2env": stdout2env},
		Setup: func(e *testscript.Env) error {
			dir, err := os.MkdirTemp("", "carboy") // short, for its socket
			if err != nil {
				return err
			}
			d, err := newFake(dir)
			if err != nil {
				return err
			}
			e.Defer(func() {
				d.Close()
				_ = os.RemoveAll(dir)
			})
			e.Setenv("CARBOY_FAKE", d.Socket)
			e.Setenv("CARBOY_STATE", filepath.Join(e.WorkDir, ".state"))
			e.Setenv("CARBOY_AGENTS", filepath.Join(e.WorkDir, "agents"))
			e.Setenv("TMPDIR", dir)
			e.Setenv("TZ", "UTC")
			e.Setenv("GORACE", raceOptions)
			return nil
		},
	})
}

// code runs a program and holds its exit code to the first argument.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		got = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// stdout2env sets a variable to what the last program printed.
func stdout2env(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stdout2env NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}
