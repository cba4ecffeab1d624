package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// maxPrompt bounds a file with a prompt, in bytes.
const maxPrompt = 1 << 20

type agentOptions struct {
	spec                    launch.Spec
	resume, prompt, version string
	ask, remote, detach     bool
}

// agentRun is one run of an agent.
type agentRun struct {
	*app
	p    *provider.Provider
	up   bool           // it runs in a bottle
	plan *manifest.Plan // of the bottle that it runs in; nil: flags say what it has
	o    agentOptions
	args []string // the agent's own

	out      *provider.Outside
	grant    *provider.Grant
	install  *provider.Installation // nil: the program is the image's, or a template's
	packaged *packaged              // the template of its package; nil: it is not that
	in       provider.Inside
	program  []string // how it is called inside
	setup    *api.SetUp
	repo     *repository.Repository

	memorySaid bool

	svc   *client.Client
	sb    *api.Sandbox
	began time.Time
	runs  *guestv1.Process // the program, where it runs already
}

// outside is what is known of the user. stored are names of their secrets, and given
// those that flags say.
func (a *app) outside(stored, given []string) *provider.Outside {
	names := make([]string, len(given))
	for i, s := range given {
		names[i], _, _ = strings.Cut(s, "=")
	}
	return &provider.Outside{Home: a.Getenv("HOME"), LookupEnv: a.LookupEnv, Given: names, Stored: stored, Now: a.Now()}
}

// runAgent runs an agent in a sandbox of its own, or in the one that --resume names.
func (a *app) runAgent(ctx context.Context, fs *pflag.FlagSet, name string, o agentOptions, args []string) error {
	p, err := provider.Find(a.env.AgentsDir, name)
	if err != nil {
		return err
	}
	g := &agentRun{app: a, p: p, o: o, args: args}
	if err := g.flags(fs); err != nil {
		return err
	}
	return g.start(ctx, fs)
}

// start makes the sandbox ready, and runs the agent in it.
func (g *agentRun) start(ctx context.Context, fs *pflag.FlagSet) error {
	if g.p.Program == "" && len(g.args) == 0 {
		again := runCommand(g.p.Name, "")
		if g.plan != nil {
			again = "carboy up " + shell.Word(g.plan.Agent)
		}
		return usage.Errorf("%s: it is what you type that it runs, and there is nothing", g.p.Name).WithHint("%s -- PROGRAM", again)
	}
	if _, err := relay.NewCommand(g.args, &relay.Options{}); err != nil { // before JSON makes others of them
		return err
	}
	ready, stop := relay.UntilSignal(ctx)
	err := g.prepare(ready, fs)
	interrupted := context.Cause(ready) == relay.ErrInterrupted
	stop()
	switch {
	case err != nil && interrupted:
		return relay.ErrInterrupted
	case err != nil && g.plan != nil:
		return g.plan.Placed(err)
	case err != nil:
		return err
	}
	return g.run(ctx)
}

// flags refuses those that can't go together.
func (g *agentRun) flags(fs *pflag.FlagSet) error {
	var with string
	allowed := []string{"resume", "ask", "prompt-file", "remote-control", "json", "detach"}
	fs.Visit(func(f *pflag.Flag) {
		if !slices.Contains(allowed, f.Name) {
			with = f.Name
		}
	})
	switch {
	case g.o.resume != "" && with != "":
		return usage.Errorf("--resume can't go with --%s: that sandbox is as it was made", with).WithHint("carboy set %s changes it", shell.Word(g.o.resume))
	case g.o.remote && len(g.p.Run.Remote) == 0:
		return usage.Errorf("--remote-control: %s has none", g.p.Name)
	case g.o.prompt != "" && g.p.Run.PromptMode == "":
		return usage.Errorf("--prompt-file: %s takes none", g.p.Name)
	case g.o.version != "" && len(g.p.Package.Steps) == 0:
		return usage.Errorf("--package-version: %s has no package", g.p.Name)
	case g.o.version != "" && provider.CheckVersion(g.o.version) != nil:
		return usage.Errorf("--package-version: %w", provider.CheckVersion(g.o.version))
	case g.o.version != "" && (g.o.spec.Image != "" || g.o.spec.Template != "" || g.o.spec.Snapshot != ""):
		return usage.Errorf("--package-version can't go with --image, --template or --snapshot")
	}
	return nil
}

// prepare makes the sandbox and sets it up, or finds the one that is gone on in. On an
// error nothing of it is left.
func (g *agentRun) prepare(ctx context.Context, fs *pflag.FlagSet) (err error) {
	if err := g.readPrompt(); err != nil {
		return err
	}
	if g.o.resume != "" {
		return g.reopen(ctx)
	}
	if err := g.place(ctx, fs); err != nil {
		return err
	}
	if err := g.find(ctx); err != nil {
		return err
	}
	req, err := g.request()
	if err != nil {
		return err
	}
	// What can be known is told before a build, which is slow.
	if err := g.check(ctx, req); err != nil {
		return err
	}
	if err := g.buildPackage(ctx); err != nil {
		return err
	}
	done, err := g.describe(req)
	if err != nil {
		return err
	}
	defer done()
	if err := g.make(ctx, req); err != nil {
		if left := g.takeBack(ctx, req.Name); left != nil {
			g.Note(console.Escape(left.Error()))
		}
		return err
	}
	g.firstLine()
	return nil
}

// check tells what can be known before a sandbox is made.
func (g *agentRun) check(ctx context.Context, req *launch.Request) error {
	l := g.launcher(g.svc)
	err := l.Check(ctx, req)
	if g.unlimited(req, err) {
		err = l.Check(ctx, req)
	}
	return err
}

// make makes the sandbox.
func (g *agentRun) make(ctx context.Context, req *launch.Request) (err error) {
	g.sb, err = g.makeSandbox(ctx, g.svc, req)
	if g.unlimited(req, err) {
		g.sb, err = g.makeSandbox(ctx, g.svc, req)
	}
	return err
}

// takeBack removes the sandbox of a create that was interrupted, and that the daemon would go on
// with: it starts an agent that is left running although nobody waits for it.
func (g *agentRun) takeBack(ctx context.Context, name string) (err error) {
	if !g.o.detach || context.Cause(ctx) != relay.ErrInterrupted {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if g.sb, err = g.svc.Get(ctx, name); err != nil {
		return nil // it has been undone
	}
	if err := g.undo(ctx); sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	return nil
}

// unlimited leaves out the limit of memory that nobody asked for, where it can't be kept.
func (g *agentRun) unlimited(req *launch.Request, err error) bool {
	if g.memorySaid || sandbox.KindOf(err) != sandbox.Unsupported || !strings.HasPrefix(err.Error(), "memory: ") || req.Limits.Memory == 0 {
		return false
	}
	req.Limits.Memory = 0
	return true
}

func (g *agentRun) readPrompt() error {
	if g.o.prompt == "" {
		return nil
	}
	f, err := beneath.OpenInput(g.o.prompt)
	if err != nil {
		return usage.Path("--prompt-file", g.o.prompt, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, maxPrompt+1))
	switch {
	case err != nil:
		return usage.Path("--prompt-file", g.o.prompt, err)
	case len(b) > maxPrompt:
		return usage.Errorf("--prompt-file: %s is larger than 1 MiB", shell.Word(g.o.prompt))
	case strings.TrimSpace(string(b)) == "":
		return usage.Errorf("--prompt-file: %s is empty", shell.Word(g.o.prompt))
	}
	g.in.Prompt = string(b)
	return nil
}

// reopen finds the sandbox that --resume names, and starts it where it was stopped. Where
// the agent still runs in it, that is joined.
func (g *agentRun) reopen(ctx context.Context) (err error) {
	if g.svc, err = g.service(ctx); err != nil {
		return err
	}
	if g.sb, err = g.svc.Get(ctx, g.o.resume); err != nil {
		return err
	}
	if err := g.ours(); err != nil {
		return err
	}
	is := g.sb.Agent
	g.program, g.in.Dir = is.Program, is.Dir
	if g.sb, g.runs, err = g.comeBack(ctx, g.svc, g.sb.ID); err != nil {
		return err
	}
	if g.runs != nil && (len(g.args) > 0 || g.in.Prompt != "") {
		name := shell.Word(g.sb.Name)
		return sandbox.Errorf(sandbox.Conflict, "--resume: %s still runs in %s, and takes no arguments any more", g.p.Name, name).WithHint("carboy attach %s", name)
	}
	g.in.Home, g.in.Workspace, g.in.Bypass = bottle.Home(g.sb.User), repository.Inside, !g.o.ask
	g.grant = g.granted(g.sb.Secrets)
	if g.runs != nil {
		return nil // it is set up, and at work
	}
	if err := g.newSetUp(); err != nil {
		return err
	}
	g.setup.Agent.Name, g.setup.Agent.Bottle, g.setup.Agent.Digest = is.Name, is.Bottle, is.Digest
	defer g.tellHeld(ctx, g.svc, g.sb.ID)()
	news, stop := g.createNews()
	defer stop()
	sb, err := g.svc.SetUp(ctx, g.sb.ID, g.setup, news)
	if err == nil {
		g.sb = sb
	}
	return err
}

// ours reports why the sandbox that --resume names is not one of this agent's.
func (g *agentRun) ours() error {
	name, is := shell.Word(g.sb.Name), g.sb.Agent
	switch {
	case is == nil:
		return sandbox.Errorf(sandbox.Conflict, "--resume: %s is no sandbox of an agent's", name).WithHint("carboy exec -it %s -- sh", name)
	case is.Name != "" && !g.up:
		return sandbox.Errorf(sandbox.Conflict, "--resume: %s is one of the agent %s", name, console.Escape(is.Name)).WithHint("carboy up --resume %s", name)
	case is.Name == "" && g.up, is.Provider != g.p.Name:
		return sandbox.Errorf(sandbox.Conflict, "--resume: %s is one of %s", name, console.Escape(is.Provider)).WithHint("%s", runCommand(is.Provider, " --resume "+name))
	}
	return nil
}
