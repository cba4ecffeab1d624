// Package commits takes the commits that were made in a sandbox into the repository of
// its user, as the user who asks.
//
// Git inside the sandbox is asked for them as any command there is run, and nothing it
// says is believed: package quarantine looks at all of it. Here is told what came and how
// to merge it. It refuses a sandbox whose workspace is no view of a directory: there is
// no repository that its commits would be for.
package commits

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Taker takes commits, as one user.
type Taker struct {
	*console.Console
	// Connect returns the client, and starts a daemon where none runs.
	Connect func(ctx context.Context) (*client.Client, error)
	// StateDir is the caller's own directory of state, where a quarantine is.
	StateDir string
}

// Options say what is taken.
type Options struct {
	Prune     bool          // remove refs of what is gone inside
	MaxSize   int64         // bytes of all objects, packed; 0: what is usual
	MaxObject int64         // bytes of a file; 0: what is usual
	Timeout   time.Duration // for all of it; 0: DefaultTimeout
}

// DefaultTimeout is how long a sandbox may take to say and send what it has.
const DefaultTimeout = 10 * time.Minute

// Fetch takes the commits of the branches and tags refs of the sandbox name; none: of all
// that have commits of their own.
func (t *Taker) Fetch(ctx context.Context, o Options, name string, refs []string) error {
	if o.Prune && len(refs) > 0 {
		return usage.Errorf("fetch: --prune is about all branches, and %s is named", shell.Word(refs[0])).
			WithHint("carboy fetch --prune %s", shell.Word(name))
	}
	git, err := jail.Find(ctx, t.Getenv("PATH"))
	if err != nil {
		return err
	}
	svc, err := t.Connect(ctx)
	if err != nil {
		return err
	}
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := checkFetchable(sb); err != nil {
		return err
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, sandbox.Errorf(sandbox.Unavailable,
		"sandbox %s: its commits had not come after %s; nothing was changed", shell.Word(sb.Name), o.Timeout).WithHint("--timeout allows more"))
	defer cancel()
	repo, err := quarantine.Open(ctx, git, sb.Workspace.Source)
	if err != nil {
		return err
	}
	res, err := repo.Fetch(ctx, &guest{t: t, svc: svc, sb: sb}, quarantine.Options{
		State: t.StateDir, ID: sb.ID, Name: sb.Name, Named: refs, Prune: o.Prune, MaxBytes: o.MaxSize, MaxObject: o.MaxObject,
	})
	if err != nil {
		return usage.Named(err, sb.ID, sb.Name)
	}
	return t.show(sb, repo, res)
}

// checkFetchable refuses a sandbox that has no view of a directory.
func checkFetchable(sb *api.Sandbox) error {
	name, source := shell.Word(sb.Name), shell.Word(sb.Workspace.Source)
	switch sandbox.WorkspaceMode(sb.Workspace.Mode) {
	case sandbox.WorkspaceCOW:
		return nil
	case sandbox.WorkspaceWritable:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is %s itself, so its commits are there already", name, source)
	case sandbox.WorkspaceReadOnly:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is read-only, so there are no commits", name)
	}
	return sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is no view of a directory, so there is no repository for its commits", name).
		WithHint("carboy cp %s:/workspace .", name)
}

// guest is a sandbox's repository, asked by its own git.
type guest struct {
	t   *Taker
	svc *client.Client
	sb  *api.Sandbox
}

// Refs implements quarantine.Source.
func (g *guest) Refs(ctx context.Context, out io.Writer) error {
	n := &counter{w: out}
	err := g.git(ctx, nil, n, "show-ref", "--head", "--heads", "--tags")
	if e, ok := errors.AsType[*ended](err); ok && e.code == 1 && n.n == 0 && e.says == "" {
		return nil // there is none
	}
	return err
}

// Commits implements quarantine.Source.
func (g *guest) Commits(ctx context.Context, tips []string, most int, out io.Writer) error {
	return g.git(ctx, tips, out, "rev-list", "--parents", "--max-count="+strconv.Itoa(most), "--stdin")
}

// Pack implements quarantine.Source.
func (g *guest) Pack(ctx context.Context, want, have []string, out io.Writer) error {
	in := slices.Clone(want)
	for _, id := range have {
		in = append(in, "^"+id)
	}
	progress := g.t.NewProgress()
	defer progress.Stop()
	return g.git(ctx, in, &counter{w: out, tell: func(n int64) { progress.Set(0, n) }}, "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
}

// maxSays is how much of what git says of an error is read.
const maxSays = 4 << 10

// guestEnv has git inside ask nobody, and be content with whom the repository belongs to.
var guestEnv = map[string]string{
	"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1",
	"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
}

// git runs git inside with those lines as its input. What it writes goes to out.
func (g *guest) git(ctx context.Context, lines []string, out io.Writer, args ...string) error {
	says := &head{}
	o := client.ExecOptions{
		ID: "fetch-" + strings.ToLower(rand.Text()),
		Command: &guestv1.Command{
			Argv: append([]string{"git"}, args...), Cwd: sandbox.WorkspacePath, Env: guestEnv,
			OrphanGraceMs: uint64(time.Minute / time.Millisecond),
		},
		Stdout: out, Stderr: says,
		Notice: func(s string) { g.t.Note(console.Escape(s)) },
	}
	if len(lines) > 0 {
		o.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	}
	end, err := g.svc.Exec(ctx, g.sb.ID, o)
	if err != nil {
		g.kill(ctx, o.ID)
		return err
	}
	return g.failed(end, says.String())
}

// kill ends a git that nobody listens to any more. It may have ended by itself.
func (g *guest) kill(ctx context.Context, id string) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, _ = g.svc.Commands(g.sb.ID).Signal(ctx, connect.NewRequest(&guestv1.SignalRequest{Id: id, Signal: int32(syscall.SIGKILL), All: true, By: "client"}))
}

// ended is a git inside that failed.
type ended struct {
	code int
	says string
	told *sandbox.Error
}

// Error implements error.
func (e *ended) Error() string { return e.told.Msg }

// Unwrap leads to what a user is told.
func (e *ended) Unwrap() error { return e.told }

// failed is why a git inside failed, nil where it did not.
func (g *guest) failed(end *guestv1.Exit, says string) error {
	name := shell.Word(g.sb.Name)
	code := exit.Of(end)
	e := &ended{code: code, says: says}
	line, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(says, "fatal: "), "error: "), "\n")
	switch {
	case end.GetReason() == guestv1.Reason_REASON_NOT_STARTED:
		e.told = sandbox.Errorf(sandbox.Unsupported, "sandbox %s: it has no git that could say its commits", name).
			WithHint("carboy apply %s takes the files without", name)
	case code == 0:
		return nil
	case strings.Contains(line, "not a git repository"):
		e.told = sandbox.Errorf(sandbox.Conflict, "sandbox %s: /workspace is no repository there", name).
			WithHint("carboy apply %s takes the files without", name)
	case line == "":
		e.told = sandbox.Errorf(sandbox.Unavailable, "sandbox %s: its git ended with code %d: %s", name, code, end.GetError())
	default:
		e.told = sandbox.Errorf(sandbox.Conflict, "sandbox %s: its git says: %.200s", name, line)
	}
	return e
}

// head keeps the first bytes that it is given.
type head struct{ bytes.Buffer }

// Write implements io.Writer; it never fails.
func (h *head) Write(p []byte) (int, error) {
	_, _ = h.Buffer.Write(p[:min(len(p), maxSays-h.Len())]) // a buffer never fails
	return len(p), nil
}

// counter counts what passes.
type counter struct {
	w    io.Writer
	n    int64
	tell func(n int64) // nil: nobody wants to know
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.n += int64(n); c.tell != nil {
		c.tell(c.n)
	}
	return n, err
}
