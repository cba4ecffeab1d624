package backendtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

func testTerminals(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *instance)
	}{
		{"is-one", isTerminal},
		{"sizes", terminalSizes},
		{"interrupt", interrupt},
		{"job-control", jobControl},
		{"nobodys-job", nobodysJob},
		{"end-of-input", endOfInput},
		{"hang-up", hangUp},
		{"refused-sizes", refusedSizes},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, b) })
	}
}

func onTerminal(script string) *guestv1.Command {
	return with(shell(script), func(c *guestv1.Command) { c.Terminal = &guestv1.Terminal{Cols: 91, Rows: 33} })
}

// lines is a terminal's output without its carriage returns.
func lines(out string) string { return strings.ReplaceAll(out, "\r\n", "\n") }

func isTerminal(t *testing.T, b *instance) {
	e := b.run(t, onTerminal("test -t 0 && test -t 1 && test -t 2 && echo terminal; echo $TERM; echo to-tty > /dev/tty; stat -c %u $(tty); echo err >&2"))
	if got, want := lines(e.stdout), "terminal\nxterm-256color\nto-tty\n1000\nerr\n"; got != want || e.stderr != "" {
		t.Errorf("stdout %q, stderr %q, want %q and nothing", got, e.stderr, want)
	}
	b.says(t, "test -t 0 || test -t 1 || test -t 2 || echo none; (: < /dev/tty) 2>/dev/null || echo no tty", "none\nno tty\n")
	e = b.run(t, onTerminal("python3 -c '"+positions+"'"))
	if want := "pread ESPIPE\npwrite ESPIPE\npreadv ESPIPE\npwritev ESPIPE\n"; lines(e.stdout) != want {
		t.Errorf("a terminal with positions: %q%q, want %q", e.stdout, e.stderr, want)
	}
}

// positions reads and writes at one in a terminal, which has none.
const positions = `
import errno, os
tty = os.open("/dev/tty", os.O_RDWR)
for name, call in (("pread", lambda: os.pread(tty, 1, 0)), ("pwrite", lambda: os.pwrite(tty, b"x", 0)),
                   ("preadv", lambda: os.preadv(tty, [bytearray(1)], 0)), ("pwritev", lambda: os.pwritev(tty, [b"x"], 0))):
    try:
        print(name, call())
    except OSError as e:
        print(name, errno.errorcode[e.errno])
`

func (r *running) resize(cols, rows uint32) error {
	_, err := r.b.exec.Resize(r.t.Context(), connect.NewRequest(&guestv1.ResizeRequest{Id: r.id, Size: &guestv1.Terminal{Cols: cols, Rows: rows}}))
	return err
}

// A command, what it has started and what it starts later see the size, and
// are told of a new one.
func terminalSizes(t *testing.T, b *instance) {
	r := b.begin(t, onTerminal(`stty size; sh -c 'stty size'
sh -c "trap 'echo child-told; exit' WINCH; echo child-ready; while :; do sleep 0.05; done" &
trap 'echo shell-told' WINCH
while :; do read -r x && { stty size; sh -c 'stty size'; }; done`))
	r.awaits("33 91\r\n33 91\r\n")
	r.awaits("child-ready")
	must(t, r.resize(120, 40))
	for _, who := range []string{"child", "shell"} {
		for !strings.Contains(r.out.String(), who+"-told") && r.next() {
		}
	}
	r.write("\n", false)
	r.awaits("40 120\r\n40 120")
	must(t, r.resize(80, 24))
	r.write("\n", false)
	r.awaits("24 80\r\n24 80")
	r.signal(9, true)
	r.end()
}

// Ctrl-C ends what is in the foreground, not the shell.
func interrupt(t *testing.T, b *instance) {
	r := b.begin(t, with(argv("bash", "--norc", "-i"), func(c *guestv1.Command) {
		c.Terminal = &guestv1.Terminal{Cols: 80, Rows: 24}
		c.Env = map[string]string{"PS1": "prompt> "}
	}))
	r.awaits("prompt> ")
	r.write("echo start-$((1+1)); cat\n", false)
	r.awaits("start-2")
	r.write("to-cat\n", false)
	r.awaits("to-cat\r\nto-cat") // what was typed, and cat's answer
	r.write("\x03", false)
	r.awaits("prompt> ") // what is typed before may still be taken by cat
	r.write("echo back-$((40+2)) $?\n", false)
	r.awaits("back-42 130")
	r.write("exit 5\n", false)
	if e := r.end(); e.exit.GetCode() != 5 {
		t.Errorf("ended by %v, want the shell's own 5", e.exit)
	}
	// A raw terminal passes it on as a byte.
	r = b.begin(t, onTerminal("stty raw -echo; echo ready; head -c 1 | od -An -tx1"))
	r.awaits("ready")
	r.write("\x03", false)
	if e := r.end(); !strings.Contains(e.stdout, "03") || e.exit.GetCode() != 0 {
		t.Errorf("in raw mode: %q, %v", e.stdout, e.exit)
	}
}

// inFront waits until its process group is the terminal's foreground.
const inFront = "import os,time\nwhile os.tcgetpgrp(0) != os.getpgrp(): time.sleep(0.02)\nprint('in front')\ntime.sleep(1000)"

// Ctrl-Z stops nothing that nobody could have go on again: a command that leads its terminal's
// session, and what it started without a job of its own. So with a program that reads the key and
// stops itself.
func nobodysJob(t *testing.T, b *instance) {
	const answers = `while read -r x; do echo "got-$x"; done`
	for name, script := range map[string]string{
		"leader":  `echo ready; ` + answers,
		"its-own": `echo ready; sh -c '` + answers + `'; echo after`,
		"child":   `trap : TSTP; echo ready; sh -c '` + answers + `'; echo after`,
		"itself":  `stty raw; echo ready; head -c 1 >/dev/null; stty sane; kill -TSTP $$; ` + answers,
	} {
		t.Run(name, func(t *testing.T) {
			r := b.begin(t, onTerminal(script))
			r.awaits("ready")
			r.write("\x1a", false)
			for i := range 2 {
				r.write(fmt.Sprintf("line-%d\n", i), false)
				r.awaits(fmt.Sprintf("got-line-%d\r\n", i))
			}
			r.write("\x04", false)
			if e := r.end(); e.exit.GetCode() != 0 {
				t.Errorf("ended by %v: %q", e.exit, e.stdout)
			}
		})
	}
}

func jobControl(t *testing.T, b *instance) {
	r := b.begin(t, with(argv("bash", "--norc", "-i"), func(c *guestv1.Command) {
		c.Terminal = &guestv1.Terminal{Cols: 80, Rows: 24}
		c.Env = map[string]string{"PS1": "prompt> "}
	}))
	r.awaits("prompt> ")
	r.write("python3 -c \""+inFront+"\" & jobs\n", false)
	r.awaits("Running")
	r.write("fg; echo stopped-$?\n", false)
	r.awaits("in front\r\n")
	r.write("\x1a", false) // Ctrl-Z
	r.awaits("Stopped")
	r.awaits("stopped-148")
	r.write("bg; sleep 7076 & jobs\n", false)
	r.awaits("Running")
	r.awaits("Running")
	r.write("kill -9 %1 %2; wait; echo jobs-$((2*3))\n", false)
	r.awaits("jobs-6")
	r.write("exit 0\n", false)
	r.end()
	b.says(t, "pgrep -c -f '^sleep 7076'; true", "0\n")
}

func endOfInput(t *testing.T, b *instance) {
	// Typed by a person,
	r := b.begin(t, onTerminal("stty -echo; echo ready; cat; echo end"))
	r.awaits("ready")
	r.write("line\n\x04", false)
	if e := r.end(); lines(e.stdout) != "ready\nline\nend\n" {
		t.Errorf("stdout %q", e.stdout)
	}
	// or said by a caller.
	r = b.begin(t, onTerminal("stty -echo; echo ready; cat; echo end"))
	r.awaits("ready")
	r.write("line\n", true)
	if e := r.end(); lines(e.stdout) != "ready\nline\nend\n" {
		t.Errorf("with eof: stdout %q", e.stdout)
	}
}

// A follower that leaves does not hang up on the command: another may come.
func hangUp(t *testing.T, b *instance) {
	r := b.begin(t, onTerminal("echo ready; read -r x; echo got $x"))
	r.awaits("ready")
	ctx, leave := context.WithCancel(t.Context())
	follow := func(ctx context.Context) *running {
		stream, err := b.exec.Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{Id: r.id}))
		must(t, err)
		return &running{t: t, b: b, id: r.id, stream: stream}
	}
	follow(ctx).awaits("ready")
	leave()
	_ = r.stream.Close()
	later := follow(t.Context())
	later.write("text\n", false)
	if e := later.end(); !strings.Contains(e.stdout, "got text") || e.exit.GetCode() != 0 {
		t.Errorf("%+v", e)
	}
}

func refusedSizes(t *testing.T, b *instance) {
	_, err := b.launch(t, with(onTerminal("true"), func(c *guestv1.Command) { c.Terminal.Cols = 1 << 16 }))
	wantCode(t, "a terminal that is too wide", err, connect.CodeInvalidArgument)
	r := b.begin(t, shell("sleep 1000"))
	wantCode(t, "a size for what has no terminal", r.resize(80, 24), connect.CodeInvalidArgument)
	r.signal(9, true)
	r.end()
	wantCode(t, "a size for what has ended", r.resize(80, 24), connect.CodeInvalidArgument)
}
