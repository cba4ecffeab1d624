package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

// withFake returns carboy with arguments, for a fake daemon.
func withFake(t *testing.T, d *fakeDaemon, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("carboy", args...)
	cmd.Env = []string{
		"CARBOY_FAKE=" + d.Socket, "CARBOY_STATE=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(),
		"GORACE=" + raceOptions, "GOCOVERDIR=" + t.TempDir(),
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

// await waits until something happened.
func await(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(patience):
		t.Fatal("it did not happen")
	}
}

// inTime waits for the end of a process, and kills one that does not end.
func inTime(t *testing.T, cmd *exec.Cmd, limit time.Duration) int {
	t.Helper()
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("it did not end within %v", limit)
	}
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// TestStallingAgent holds against an agent that sends messages without anything
// in them, for ever.
func TestStallingAgent(t *testing.T) {
	const says = "carboy: the sandbox's agent makes no sense: it sends messages without anything new in them"
	for name, fake := range fakeStalls {
		if fake.every > 0 {
			continue
		}
		for _, args := range [][]string{
			{"exec", "web", "--", name},
			{"exec", "--detach", "web", "--", name},
			{"run", "--", name},
		} {
			t.Run(name+"/"+strings.Join(args[:2], "-"), func(t *testing.T) {
				d := startFake(t)
				create(t, d, "web")
				cmd, out := withFake(t, d, args...)
				must(t, cmd.Start())
				code := inTime(t, cmd, patience)
				if name == "fake-started" && args[1] == "--detach" {
					if code != 0 { // it is all that was asked for
						t.Errorf("exit code %d, %q", code, out)
					}
					return
				}
				if code != 125 || !strings.Contains(out.String(), says) {
					t.Errorf("exit code %d, %q", code, out)
				}
			})
		}
	}
}

// TestStallingLogs is the same for what an agent says that it has kept.
func TestStallingLogs(t *testing.T) {
	for name := range fakeStalls {
		for _, follow := range []bool{false, true} {
			d := startFake(t)
			create(t, d, "web")
			if fakeStalls[name].every > 0 {
				continue
			}
			g := d.boxes[0].guest
			g.mu.Lock()
			g.procs["c1"] = &fakeProc{command: &guestv1.Command{Argv: []string{name}}}
			g.mu.Unlock()
			args := []string{"logs", "web", "c1"}
			if follow {
				args = append(args, "-f")
			}
			cmd, out := withFake(t, d, args...)
			must(t, cmd.Start())
			if code := inTime(t, cmd, patience); code != 125 || !strings.Contains(out.String(), "makes no sense") {
				t.Errorf("%s, %q: exit code %d, %q", name, args, code, out)
			}
		}
	}
}

// TestStallingAgentAndSignals holds that a signal ends carboy, whatever the
// agent does: the first one after ten seconds, the second one
// once the agent has had five to kill the command.
func TestStallingAgentAndSignals(t *testing.T) {
	tests := []struct {
		name    string
		command string
		signals int
		says    string
		code    int
	}{
		{"once", "fake-slow", 1, "carboy: the sandbox did not take signal 15 within 10s", 125},
		{"twice", "fake-slow", 2, "interrupted: the command was killed", 137},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := startFake(t)
			create(t, d, "web")
			cmd, out := withFake(t, d, "exec", "web", "--", tt.command)
			must(t, cmd.Start())
			await(t, d.boxes[0].guest.started)
			for range tt.signals {
				must(t, cmd.Process.Signal(syscall.SIGTERM))
				await(t, d.boxes[0].guest.signalled)
			}
			if code := inTime(t, cmd, patience); code != tt.code || !strings.Contains(out.String(), tt.says) {
				t.Errorf("exit code %d, %q; want %d, %q", code, out, tt.code, tt.says)
			}
		})
	}
}
