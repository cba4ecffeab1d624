package backendtest

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

const (
	exited     = guestv1.Reason_REASON_EXITED
	signalled  = guestv1.Reason_REASON_SIGNALLED
	timedOut   = guestv1.Reason_REASON_TIMED_OUT
	notStarted = guestv1.Reason_REASON_NOT_STARTED
	killed     = guestv1.Reason_REASON_KILLED
)

// closedDir is a directory inside that is closed to its own user.
const closedDir = "/tmp/closed"

// execCase is a command and how it must go. A code of 0 needs no reason.
type execCase struct {
	name   string
	cmd    *guestv1.Command
	stdout string
	stderr string // a part of it, and of the exit's own error
	code   int32
	reason guestv1.Reason
	denied connect.Code // it is not accepted at all
}

func shell(script string) *guestv1.Command { return command("", script) }

func argv(words ...string) *guestv1.Command { return &guestv1.Command{Argv: words} }

func with(cmd *guestv1.Command, set func(*guestv1.Command)) *guestv1.Command {
	set(cmd)
	return cmd
}

func inDir(dir string) *guestv1.Command {
	return with(argv("pwd"), func(c *guestv1.Command) { c.Cwd = dir })
}

func inEnv(script string, env map[string]string) *guestv1.Command {
	return with(shell(script), func(c *guestv1.Command) { c.Env = env })
}

var execCases = []execCase{
	// argv
	{name: "arguments", cmd: argv("printf", "%s|", "a", "", "b c", "'\"", "$HOME `id`", "*", "-n", "é\n\t"), stdout: "a||b c|'\"|$HOME `id`|*|-n|é\n\t|"},
	{name: "long-argument", cmd: argv("sh", "-c", `echo ${#1}`, "sh", strings.Repeat("x", 120_000)), stdout: "120000\n"},
	{name: "too-long-argument", cmd: argv("true", strings.Repeat("x", 128<<10)), code: 126, reason: notStarted, stderr: "argument 1"},
	{name: "absolute-program", cmd: argv("/bin/echo", "hi"), stdout: "hi\n"},
	{name: "no-program", cmd: argv(), denied: connect.CodeInvalidArgument},
	{name: "empty-program", cmd: argv(""), denied: connect.CodeInvalidArgument},
	{name: "zero-byte", cmd: argv("echo", "a\x00b"), denied: connect.CodeInvalidArgument},
	{name: "not-found", cmd: argv("no-such-command"), code: 127, reason: notStarted, stderr: "no-such-command"},
	{name: "not-found-path", cmd: argv("/no/such"), code: 127, reason: notStarted, stderr: "/no/such"},
	{name: "not-executable", cmd: argv("/etc/passwd"), code: 126, reason: notStarted, stderr: "/etc/passwd"},
	{name: "directory", cmd: argv("/usr"), code: 126, reason: notStarted, stderr: "/usr"},
	{name: "no-interpreter", cmd: shell("printf '#!/no/such\\n' > /tmp/s && chmod 755 /tmp/s && /tmp/s"), code: 127, reason: exited},
	{name: "interpreter", cmd: argv("/tmp/by-name"), stdout: "by /tmp/by-name\n"},
	{name: "interpreter-is-the-agent", cmd: argv("/tmp/by-exe"), code: 126, reason: notStarted, stderr: "permission denied"},
	{name: "interpreter-is-the-agents-thread", cmd: argv("/tmp/by-thread"), code: 126, reason: notStarted, stderr: "permission denied"},
	{name: "interpreter-is-init", cmd: argv("/tmp/by-init"), code: 126, reason: notStarted, stderr: "permission denied"},

	// environment
	{name: "environment", cmd: inEnv(`printf '%s|%s|%s' "$A" "${EMPTY-unset}" "$LINES"`, map[string]string{"A": "1 2", "EMPTY": "", "LINES": "x\ny"}), stdout: "1 2||x\ny"},
	{name: "standard-environment", cmd: shell("echo $HOME $USER $LOGNAME; command -v sh >/dev/null && echo found"), stdout: "/home/user user user\nfound\n"},
	{name: "own-path", cmd: inEnv("command -v true || echo none", map[string]string{"PATH": "/bin-of-nobody:/bin"}), stdout: "true\n"},
	{name: "bad-variable", cmd: inEnv("true", map[string]string{"A=B": "1"}), denied: connect.CodeInvalidArgument},

	// directory
	{name: "directory-absolute", cmd: inDir("/usr"), stdout: "/usr\n"},
	{name: "directory-home", cmd: inDir("~"), stdout: "/home/user\n"},
	{name: "directory-missing", cmd: inDir("/no/such"), code: 126, reason: notStarted, stderr: "/no/such"},
	{name: "directory-closed", cmd: inDir(closedDir), code: 126, reason: notStarted, stderr: closedDir},
	{name: "directory-is-a-file", cmd: inDir("/etc/passwd"), code: 126, reason: notStarted, stderr: "/etc/passwd"},

	// user
	{name: "user", cmd: command("user", "id -u"), stdout: "1000\n"},
	{name: "unknown-user", cmd: command("eve", "id"), denied: connect.CodeInvalidArgument},
	{name: "hostile-user", cmd: command("../root", "id"), denied: connect.CodeInvalidArgument},

	// how it ends
	{name: "code-1", cmd: shell("exit 1"), code: 1, reason: exited},
	{name: "code-126", cmd: shell("exit 126"), code: 126, reason: exited},
	{name: "code-255", cmd: shell("exit 255"), code: 255, reason: exited},
	{name: "by-its-own-term", cmd: shell("kill -TERM $$"), code: 143, reason: signalled},
	{name: "by-its-own-kill", cmd: shell("kill -KILL $$"), code: 137, reason: signalled},
	{name: "by-abort", cmd: shell("ulimit -c 0; kill -ABRT $$"), code: 134, reason: signalled},
	{name: "timeout", cmd: with(shell("sleep 1000 & sleep 1000"), func(c *guestv1.Command) { c.TimeoutMs = 300 }), code: 137, reason: timedOut},
	{name: "timeout-not-reached", cmd: with(shell("echo done"), func(c *guestv1.Command) { c.TimeoutMs = 50_000 }), stdout: "done\n"},

	// output
	{name: "both-streams", cmd: shell("echo out; echo err >&2"), stdout: "out\n", stderr: "err\n"},
	{name: "no-newline", cmd: shell("printf end"), stdout: "end"},
	{name: "nothing", cmd: shell(":")},
	{name: "reopened", cmd: shell("echo a > /dev/stdout; echo b >> /dev/fd/1"), stdout: "a\nb\n"},
	{name: "closed-output", cmd: shell("exec >&- 2>&-; exit 3"), code: 3, reason: exited},

	// what is left in the background does not hold up the end
	{name: "background-child", cmd: shell("(sleep 1000 &) ; echo up"), stdout: "up\n"},
	{name: "background-session", cmd: shell("setsid sleep 1000 & echo up"), stdout: "up\n"},
	{name: "no-input", cmd: shell("cat; readlink /proc/self/fd/0"), stdout: "/dev/null\n"},
}

func testExec(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	b.sh(t, "", "mkdir -m 0 "+closedDir)
	b.sh(t, "", `cd /tmp && echo '#!/bin/echo by' >by-name && echo '#!/proc/self/exe' >by-exe &&
		echo '#!/proc/thread-self/exe' >by-thread && echo '#!/proc/1/exe' >by-init && chmod 755 by-*`)
	for _, tt := range execCases {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, b) })
	}
	t.Run("root", func(t *testing.T) {
		tt := execCase{cmd: command("root", "id -u"), stdout: "0\n"}
		if !s.Root {
			tt = execCase{cmd: tt.cmd, denied: connect.CodePermissionDenied}
		}
		tt.check(t, b)
	})
	if !s.Root {
		return
	}
	for _, name := range []string{"by-exe", "by-thread", "by-init"} {
		t.Run("root-"+name, func(t *testing.T) {
			cmd := with(argv("/tmp/"+name), func(c *guestv1.Command) { c.User = "root" })
			execCase{cmd: cmd, code: 126, reason: notStarted, stderr: "permission denied"}.check(t, b)
		})
	}
}

func (tt execCase) check(t *testing.T, b *instance) {
	t.Helper()
	r, err := b.launch(t, tt.cmd)
	if tt.denied != 0 {
		wantCode(t, "start", err, tt.denied)
		return
	}
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	e := r.end()
	if e.stdout != tt.stdout {
		t.Errorf("stdout %q, want %q", e.stdout, tt.stdout)
	}
	if all := e.stderr + e.exit.GetError(); !strings.Contains(all, tt.stderr) {
		t.Errorf("stderr %q, want %q in it", all, tt.stderr)
	}
	if e.exit.GetCode() != tt.code || (tt.reason != 0 && e.exit.GetReason() != tt.reason) {
		t.Errorf("ended by %v, want code %d, %v\nstderr: %s", e.exit, tt.code, tt.reason, e.stderr)
	}
}
