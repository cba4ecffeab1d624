package backendtest

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

func testSignals(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	tests := []struct {
		name   string
		script string // prints "ready" when the signal may come
		signal syscall.Signal
		all    bool
		stdout string // after "ready\n"
		code   int32
		reason guestv1.Reason
	}{
		{name: "term", script: "echo ready; exec sleep 1000", signal: syscall.SIGTERM, code: 143, reason: killed},
		{name: "int", script: "echo ready; exec sleep 1000", signal: syscall.SIGINT, code: 130, reason: killed},
		{name: "kill", script: "echo ready; exec sleep 1000", signal: syscall.SIGKILL, code: 137, reason: killed},
		{name: "kill-all", script: "echo ready; exec sleep 1000", signal: syscall.SIGKILL, all: true, code: 137, reason: killed},
		{name: "caught", script: "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done", signal: syscall.SIGTERM, stdout: "caught\n", code: 7, reason: exited},
		{name: "user-defined", script: "trap 'echo usr; exit 0' USR1; echo ready; while :; do sleep 0.05; done", signal: syscall.SIGUSR1, stdout: "usr\n", reason: exited},
		{name: "ignored-then-killed", script: "trap '' TERM; kill -TERM $$; echo ready; while :; do sleep 0.05; done", signal: syscall.SIGKILL, code: 137, reason: killed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := b.begin(t, shell(tt.script))
			r.awaits("ready\n")
			r.signal(int32(tt.signal), tt.all)
			e := r.end()
			if rest := strings.TrimPrefix(e.stdout, "ready\n"); rest != tt.stdout {
				t.Errorf("stdout after the signal %q, want %q", rest, tt.stdout)
			}
			if e.exit.GetCode() != tt.code || e.exit.GetReason() != tt.reason {
				t.Errorf("ended by %v, want code %d, %v", e.exit, tt.code, tt.reason)
			}
			if tt.reason == killed && e.exit.GetKilledBy() != "tester" {
				t.Errorf("killed by %q", e.exit.GetKilledBy())
			}
			_, err := b.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: r.id, Signal: 15}))
			wantCode(t, "a signal to what has ended", err, connect.CodeFailedPrecondition)
		})
	}
	t.Run("whole-tree", func(t *testing.T) { wholeTree(t, b) })
	t.Run("timeout-ends-the-tree", func(t *testing.T) {
		cmd := shell("setsid sleep 7073 & (setsid sleep 7073 &); echo $(sleep 7073)")
		cmd.TimeoutMs = 500
		b.run(t, cmd)
		b.says(t, "pgrep -c -f '^sleep 7073'; true", "0\n")
	})
	t.Run("stop-and-continue", func(t *testing.T) {
		r := b.begin(t, shell("echo ready; sleep 0.2; echo done"))
		r.awaits("ready\n")
		r.signal(int32(syscall.SIGSTOP), true)
		r.signal(int32(syscall.SIGCONT), true)
		if e := r.end(); e.exit.GetCode() != 0 || !strings.HasSuffix(e.stdout, "done\n") {
			t.Errorf("%+v", e)
		}
	})
	t.Run("no-such-signal", func(t *testing.T) {
		r := b.begin(t, shell("exec sleep 1000"))
		for _, n := range []int32{0, -9, 65, 1 << 20} {
			_, err := b.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: r.id, Signal: n}))
			wantCode(t, fmt.Sprintf("signal %d", n), err, connect.CodeInvalidArgument)
		}
		r.signal(9, true)
		r.end()
	})
}

// wholeTree kills a command with everything that it started: children,
// double forks, sessions of their own, and what ignores signals.
func wholeTree(t *testing.T, b *instance) {
	const script = `
sleep 7074 &
(setsid sleep 7074 &)
setsid sh -c "trap '' TERM INT HUP; (sleep 7074 &) ; sleep 7074" &
sh -c 'nohup sleep 7074 >/dev/null 2>&1 &'
while [ $(pgrep -c -f '^sleep 7074') -lt 5 ]; do :; done
echo ready
wait`
	r := b.begin(t, shell(script))
	r.awaits("ready\n")
	bystander := b.begin(t, shell("exec sleep 7075"))
	b.sh(t, "", executed("sleep 7075"))
	r.signal(int32(syscall.SIGKILL), true)
	b.says(t, "pgrep -c -f '^sleep 7074'; pgrep -c -f '^sleep 7075'", "0\n1\n")
	if e := r.end(); e.exit.GetCode() != 137 {
		t.Errorf("ended by %v", e.exit)
	}
	bystander.signal(int32(syscall.SIGKILL), true)
	bystander.end()
}

// testMany runs commands at once: none waits for another, and none gets
// another's bytes.
func testMany(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	const n = 100
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r, err := b.launch(t, shell(fmt.Sprintf("for j in 1 2 3; do echo %d-$j; done; exit %d", i, i%128)))
			if err != nil {
				t.Errorf("command %d: %v", i, err)
				return
			}
			e := r.end()
			want := fmt.Sprintf("%[1]d-1\n%[1]d-2\n%[1]d-3\n", i)
			if e.stdout != want || e.exit.GetCode() != int32(i%128) {
				t.Errorf("command %d: %q, %v", i, e.stdout, e.exit)
			}
		})
	}
	all.Wait()
	// A hundred that live at the same time.
	var lives []*running
	for range n {
		r := b.begin(t, fed("read x; echo $x"))
		lives = append(lives, r)
	}
	for i, r := range lives {
		r.write(fmt.Sprintln(i), true)
	}
	for i, r := range lives {
		if e := r.end(); e.stdout != fmt.Sprintln(i) {
			t.Errorf("command %d printed %q", i, e.stdout)
		}
	}
}
