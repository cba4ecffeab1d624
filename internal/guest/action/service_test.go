package action_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
)

func start(w *world, q action.StartServiceRequest) (*action.Service, error) {
	w.t.Helper()
	q.Action = action.StartService
	return ask[action.Service](w, q)
}

func status(w *world, name string) *action.Service {
	w.t.Helper()
	return must[action.Service](w, action.ServiceRequest{Action: action.StatusService, ServiceName: name})
}

func logs(w *world, name string, tail int) *action.LogsServiceReply {
	w.t.Helper()
	return must[action.LogsServiceReply](w, action.LogsServiceRequest{Action: action.LogsService, ServiceName: name, TailLines: tail})
}

// running reports whether a command line is that of a process in the world.
func running(w *world, text string) bool {
	w.t.Helper()
	return strings.Contains(must[action.ExecReply](w, action.ExecRequest{Command: "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"}).Stdout, text)
}

// listener is a server on a port that was free a moment ago, in Python or Perl.
func listener(t *testing.T, w *world) (command string, port string) {
	t.Helper()
	got := must[action.ExecReply](w, action.ExecRequest{Command: `python3 -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])'`})
	if got.ExitCode != 0 {
		t.Skip("needs python3: ", got.Stderr)
	}
	port = strings.TrimSpace(got.Stdout)
	return "python3 -u -m http.server --bind 127.0.0.1 " + port, port
}

func TestServiceReadiness(t *testing.T) {
	w := open(t)
	serve, port := listener(t, w)
	tests := []struct {
		name, command string
		ready         *action.Readiness
	}{
		{"none", "sleep 1000", nil},
		{"file", "sleep 0.2; touch up; sleep 1000", &action.Readiness{Type: "file", Path: "up"}},
		{"command", "sleep 0.2; mkdir well; sleep 1000", &action.Readiness{Type: "command", Command: "test -d well"}},
		{"tcp-port", serve, &action.Readiness{Type: "tcp", Address: port}},
		{"tcp-address", serve, &action.Readiness{Type: "tcp", Address: "127.0.0.1:" + port}},
		{"http", serve, &action.Readiness{Type: "http", URL: "http://localhost:" + port + "/"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := start(w, action.StartServiceRequest{ServiceName: tt.name, Command: tt.command, Readiness: tt.ready, ReadyIntervalMS: 20})
			if err != nil || got.State != action.Running || !got.Ready || got.Restarts != 0 || got.EndedAt != nil || got.ExitCode != nil || got.StopReason != nil || got.CWD != w.dir || got.Command != tt.command {
				t.Fatalf("got %+v, %v", got, err)
			}
			if again := status(w, tt.name); again.State != action.Running || !again.Ready || again.StartedAt != got.StartedAt {
				t.Errorf("its status is %+v", again)
			}
			_, err = start(w, action.StartServiceRequest{ServiceName: tt.name, Command: "true"})
			refused(t, err, "runs already")
			stopped := must[action.Service](w, action.ServiceRequest{Action: action.StopService, ServiceName: tt.name})
			if stopped.State != action.Stopped || stopped.Ready || stopped.EndedAt == nil || stopped.ExitCode == nil || stopped.StopReason == nil || *stopped.StopReason != "it was stopped" {
				t.Errorf("stopped %+v", stopped)
			}
		})
	}
	if got := must[action.ListServicesReply](w, action.ListRequest{Action: action.ListServices}); len(got.Services) != len(tests) || got.Services[0].ServiceName != "command" {
		t.Errorf("got %+v", got)
	}
}

func TestServiceIsNeverReady(t *testing.T) {
	w := open(t)
	serve, port := listener(t, w)
	tests := []struct {
		name, command string
		ready         action.Readiness
		words         string
	}{
		{"file", "echo begun; echo oops >&2; sleep 1003", action.Readiness{Type: "file", Path: "never"}, "was not ready within 1s: the path does not exist"},
		{"tcp", "echo begun; echo oops >&2; sleep 1003", action.Readiness{Type: "tcp", Address: port}, "connection refused"},
		{"http-missing", "echo begun; echo oops >&2; " + serve + " 2>/dev/null", action.Readiness{Type: "http", URL: "http://127.0.0.1:" + port + "/missing"}, "answers with 404"},
		{"command", "echo begun; echo oops >&2; sleep 1003", action.Readiness{Type: "command", Command: "exit 9"}, "ended with: exit status 9"},
		{"command-that-hangs", "echo begun; echo oops >&2; sleep 1003", action.Readiness{Type: "command", Command: "sleep 1003"}, "not ready within 1s"},
		{"ends", "echo begun; echo oops >&2; exit 4", action.Readiness{Type: "file", Path: "never"}, "it ended before it was ready: exit status 4"},
		{"another-host", "echo begun; echo oops >&2; sleep 1003", action.Readiness{Type: "tcp", Address: "192.0.2.1:80"}, "no address of the sandbox"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := start(w, action.StartServiceRequest{ServiceName: tt.name, Command: tt.command, Readiness: &tt.ready, ReadyTimeoutSeconds: 1, ReadyIntervalMS: 20, Restart: "always"})
			refused(t, err, tt.words)
			refused(t, err, "begun")
			refused(t, err, "oops")
			got := status(w, tt.name)
			if got.State != action.Failed || got.Ready || got.StopReason == nil || !strings.Contains(*got.StopReason, "ready") || got.EndedAt == nil || got.Restarts != 0 {
				t.Errorf("its status is %+v", got)
			}
			if running(w, "sleep 1003") || running(w, "http.server") {
				t.Error("it runs on")
			}
			if got := logs(w, tt.name, 0); !strings.HasPrefix(got.Stdout, "begun\n") || !strings.HasPrefix(got.Stderr, "oops\n") {
				t.Errorf("its logs are %+v", got)
			}
		})
	}
}

func TestServiceErrors(t *testing.T) {
	w := open(t)
	for _, tt := range []struct {
		name, words string
		q           action.StartServiceRequest
	}{
		{"no-name", "service_name has to be", action.StartServiceRequest{Command: "a"}},
		{"dot", "service_name has to be", action.StartServiceRequest{ServiceName: ".", Command: "a"}},
		{"path", "service_name has to be", action.StartServiceRequest{ServiceName: "a/b", Command: "a"}},
		{"no-command", "the command is empty", action.StartServiceRequest{ServiceName: "a"}},
		{"policy", "never, on-failure or always", action.StartServiceRequest{ServiceName: "a", Command: "a", Restart: "sometimes"}},
		{"timeout", "ready_timeout_seconds", action.StartServiceRequest{ServiceName: "a", Command: "a", ReadyTimeoutSeconds: 601}},
		{"interval", "ready_interval_ms", action.StartServiceRequest{ServiceName: "a", Command: "a", ReadyIntervalMS: 1}},
		{"readiness-type", "file, tcp, http or command", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "udp"}}},
		{"readiness-empty", "the one field of its type", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "file"}}},
		{"readiness-two", "the one field of its type", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "file", Path: "a", Address: "1"}}},
		{"tcp-name", "localhost or an address", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "tcp", Address: "example.com:80"}}},
		{"tcp-zero", "PORT or HOST:PORT", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "tcp", Address: "0"}}},
		{"http-other", "http://HOST:PORT/PATH", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "http", URL: "file:///etc/passwd"}}},
		{"http-name", "localhost or an address", action.StartServiceRequest{ServiceName: "a", Command: "a", Readiness: &action.Readiness{Type: "http", URL: "http://example.com/"}}},
		{"no-directory", "/nowhere", action.StartServiceRequest{ServiceName: "a", Command: "a", CWD: "/nowhere"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := start(w, tt.q)
			refused(t, err, tt.words)
		})
	}
	for _, q := range []any{
		action.ServiceRequest{Action: action.StatusService, ServiceName: "b"},
		action.ServiceRequest{Action: action.StopService, ServiceName: "b"},
		action.LogsServiceRequest{Action: action.LogsService, ServiceName: "b"},
	} {
		_, err := ask[map[string]any](w, q)
		refused(t, err, `no service "b"`)
	}
	_, err := ask[map[string]any](w, action.LogsServiceRequest{Action: action.LogsService, ServiceName: "a", TailLines: -1})
	refused(t, err, "can't be negative")
}

func TestServiceRestarts(t *testing.T) {
	w := open(t)
	for _, tt := range []struct {
		policy   string
		code     int
		restarts bool
		end      string // where it is not started again
	}{
		{"never", 0, false, action.Stopped},
		{"never", 5, false, action.Failed},
		{"on-failure", 0, false, action.Stopped},
		{"on-failure", 5, true, ""},
		{"always", 0, true, ""},
		{"always", 5, true, ""},
	} {
		name := fmt.Sprint(tt.policy, "-", tt.code)
		t.Run(name, func(t *testing.T) {
			q := action.StartServiceRequest{ServiceName: name, Command: fmt.Sprintf("echo run; setsid sleep 1004 & exit %d", tt.code), Restart: tt.policy}
			if _, err := start(w, q); err != nil {
				t.Fatal(err)
			}
			if !tt.restarts {
				until(t, "its end", func() bool { return status(w, name).State == tt.end })
				if got := status(w, name); got.Restarts != 0 || got.ExitCode == nil || *got.ExitCode != tt.code || got.StopReason == nil || !strings.Contains(*got.StopReason, "ended by itself") {
					t.Errorf("its status is %+v", got)
				}
			} else {
				until(t, "restarts", func() bool { return status(w, name).Restarts >= 3 })
				got := must[action.Service](w, action.ServiceRequest{Action: action.StopService, ServiceName: name})
				if got.State != action.Stopped || got.Restarts < 3 {
					t.Errorf("stopped %+v", got)
				}
				if again := status(w, name); again.Restarts != got.Restarts {
					t.Errorf("it was started after it was stopped: %+v", again)
				}
			}
			if running(w, "sleep 1004") {
				t.Error("what it had started runs on")
			}
			// The logs are of all runs.
			got := logs(w, name, 0)
			if runs := strings.Count(got.Stdout, "run\n"); runs < got.Restarts || runs > got.Restarts+1 || got.Truncated { // the last may have been stopped first
				t.Errorf("after %d restarts its log is %q", got.Restarts, got.Stdout)
			}
		})
	}
}

// A restart waits longer each time, so that a service which only fails takes little.
func TestServiceRestartsSlowDown(t *testing.T) {
	w := open(t)
	if _, err := start(w, action.StartServiceRequest{ServiceName: "a", Command: "exit 1", Restart: "always"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	until(t, "six restarts", func() bool { return status(w, "a").Restarts >= 6 })
	if took := time.Since(began); took < 10*(1+2+4+8+16+32)*time.Millisecond {
		t.Errorf("six restarts took %v", took)
	}
	if got := status(w, "a"); got.State == action.Restarting && (got.Ready || got.ExitCode == nil || got.StopReason == nil) {
		t.Errorf("its status is %+v", got)
	}
}

// Stopping asks first, and then ends all, whatever that does about it.
func TestServiceStops(t *testing.T) {
	w := open(t)
	if _, err := start(w, action.StartServiceRequest{ServiceName: "kind", Command: "trap 'echo bye; exit 6' TERM; echo up; while :; do sleep 0.05; done", Readiness: &action.Readiness{Type: "command", Command: "true"}}); err != nil {
		t.Fatal(err)
	}
	until(t, "its trap", func() bool { return logs(w, "kind", 0).Stdout == "up\n" })
	got := must[action.Service](w, action.ServiceRequest{Action: action.StopService, ServiceName: "kind"})
	if got.ExitCode == nil || *got.ExitCode != 6 || logs(w, "kind", 1).Stdout != "bye\n" {
		t.Errorf("stopped %+v", got)
	}
	if _, err := start(w, action.StartServiceRequest{ServiceName: "deaf", Command: "trap '' TERM; (trap '' TERM; setsid sleep 1005) & touch deaf; while :; do sleep 0.05; done", Readiness: &action.Readiness{Type: "file", Path: "deaf"}}); err != nil {
		t.Fatal(err)
	}
	got = must[action.Service](w, action.ServiceRequest{Action: action.StopService, ServiceName: "deaf"})
	if got.ExitCode == nil || *got.ExitCode != 137 || running(w, "sleep 1005") {
		t.Errorf("stopped %+v", got)
	}
	// Again it is as it was, and may be started again.
	if again := must[action.Service](w, action.ServiceRequest{Action: action.StopService, ServiceName: "deaf"}); *again.ExitCode != 137 || again.State != action.Stopped {
		t.Errorf("stopped again: %+v", again)
	}
	if got, err := start(w, action.StartServiceRequest{ServiceName: "deaf", Command: "sleep 1000"}); err != nil || got.State != action.Running {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestServiceLogs(t *testing.T) {
	w := open(t)
	if _, err := start(w, action.StartServiceRequest{ServiceName: "a", Command: "seq 200000; printf 'no\\377utf' >&2; touch said; sleep 1000", Readiness: &action.Readiness{Type: "file", Path: "said"}}); err != nil {
		t.Fatal(err)
	}
	until(t, "its log", func() bool { return logs(w, "a", 1).Stdout == "200000\n" && logs(w, "a", 1).Stderr != "" })
	got := logs(w, "a", 2)
	if got.Stdout != "199999\n200000\n" || got.Stderr != "no\uFFFDutf" || got.TailLines != 2 || !got.Truncated || got.State != action.Running {
		t.Errorf("the last two: %+v", got)
	}
	got = logs(w, "a", 0)
	if !strings.HasPrefix(got.Stdout, "1\n2\n") || !strings.HasSuffix(got.Stdout, "\n199999\n200000\n") || !got.Truncated ||
		!strings.Contains(got.Stdout, " bytes left out] ...") || len(got.Stdout) < server.MaxLog {
		t.Errorf("both ends: %d bytes, %v", len(got.Stdout), got.Truncated)
	}
}

// A caller who leaves is nothing to the service; when the server closes, it ends.
func TestServiceOutlivesItsCaller(t *testing.T) {
	w := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	c, served := w.connect(ctx)
	fmt.Fprint(c, `{"action":"start_service","service_name":"a","command":"touch begun; sleep 1; touch up; sleep 1006","readiness":{"type":"file","path":"up"},"restart":"always"}`)
	until(t, "its start", func() bool { _, err := os.Stat(filepath.Join(w.dir, "begun")); return err == nil })
	cancel()
	<-served
	c.Close()
	until(t, "its being ready", func() bool { return status(w, "a").Ready })
	w.stop()
	c, served = w.connect(t.Context())
	defer c.Close()
	fmt.Fprint(c, `{"action":"start_service","service_name":"b","command":"true"}`)
	if raw, _ := io.ReadAll(c); len(raw) != 0 && !strings.Contains(string(raw), "shutting down") { // it may be cut
		t.Errorf("a server that is closed answers %q", raw)
	}
	<-served
}

func TestManyServices(t *testing.T) {
	w := open(t)
	for i := range server.MaxServices {
		if _, err := start(w, action.StartServiceRequest{ServiceName: fmt.Sprint("s", i), Command: "sleep 1000"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := start(w, action.StartServiceRequest{ServiceName: "more", Command: "sleep 1000"})
	refused(t, err, "32 services run")
	must[action.Service](w, action.ServiceRequest{Action: action.StopService, ServiceName: "s3"})
	if _, err := start(w, action.StartServiceRequest{ServiceName: "more", Command: "sleep 1000"}); err != nil {
		t.Error(err)
	}
	_, err = ask[action.Service](w, action.ServiceRequest{Action: action.StatusService, ServiceName: "s3"})
	refused(t, err, "no service")
}
