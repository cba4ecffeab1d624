package cli

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template/dockerfile"
)

func (a *app) templateCommand() *cobra.Command {
	cmd := a.nounCommand("template", "Build what sandboxes are made from", "carboy template build --name web .")
	cmd.AddCommand(
		a.templateBuildCommand(), templateListing().command(a), a.templateLogsCommand(), a.templateTagCommand(),
		a.templatePublishCommand(true), a.templatePublishCommand(false), a.templateRmCommand(), a.templateGCCommand(),
	)
	return setHelp(cmd, docs{
		long: `A template is an image or another template with what a Dockerfile did to it, and
the command that each of its sandboxes starts with. --template of run and create
names one.`,
		examples: []string{"carboy template build --name web .", "carboy run --template web -- make test"},
		exits:    exitDocsPlain[:],
	})
}

// buildFlags are those of template build.
type buildFlags struct {
	file, name, start, ready string
	tags, args               []string
	cpus, memory             int
	noCache                  bool
	network                  string
	policy                   policySource
}

func (a *app) templateBuildCommand() *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use:               "build [flags] DIR",
		Short:             "Build a template from a Dockerfile",
		Args:              exactArgs("DIR"),
		RunE:              interruptible(func(ctx context.Context, args []string) error { return a.templateBuild(ctx, f, args[0]) }),
		ValidArgsFunction: completeDirs,
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "`FILE` the Dockerfile, instead of the one in DIR")
	fs.StringVar(&f.name, "name", "", "`NAME` name of the template, or NAME:TAG; needed")
	fs.StringArrayVar(&f.tags, "tag", nil, "`TAG` a further tag for the build; may be repeated")
	fs.StringArrayVar(&f.args, "build-arg", nil, "`NAME=VALUE` NAME=VALUE for an ARG; may be repeated")
	fs.StringVar(&f.start, "start", "", "`COMMAND` the start command, instead of ENTRYPOINT and CMD")
	fs.StringVar(&f.ready, "ready", "", "`COMMAND` command that succeeds once the start command is ready")
	fs.IntVar(&f.cpus, "cpus", 0, "`N` CPUs of its sandboxes, a whole number")
	fs.IntVar(&f.memory, "memory-mib", 0, "`N` memory of its sandboxes, in MiB")
	fs.Var(choiceValue{&f.network, []string{sandbox.NetworkOff, sandbox.NetworkOn}}, "network", "`NETWORK` off, or on: the public internet"+isDefault("what the daemon's setting says"))
	f.policy.add(fs)

	fs.BoolVar(&f.noCache, "no-cache", false, "take no step from an earlier build")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `Each step runs in a sandbox. It has the network of --allow, --policy and --network;
without them none, unless the daemon's setting build_network gives it one. There is no
--secret: what steps write is kept, and others start from it. FROM base means this machine's own programs. Of a
Dockerfile there may be FROM, RUN, COPY, ENV, ARG, WORKDIR, USER, and ENTRYPOINT
and CMD, which are the start command; anything else is an error.`,
		examples: []string{"carboy template build --name web .", "carboy template build --name web --allow npm .", "carboy template build --name web:v2 --ready 'curl -s localhost:80' ."},
		exits:    exitDocsPlain[:],
	})
}

func completeDirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// read turns the flags and a Dockerfile into a plan, but for the files.
func (f buildFlags) read(dir string) (dockerfile.File, error) {
	if f.name == "" {
		return dockerfile.File{}, usage.Errorf("--name: it is missing").WithHint("carboy template build --name NAME DIR")
	}
	path := f.file
	if path == "" {
		path = filepath.Join(dir, "Dockerfile")
	}
	text, err := readPath(path)
	if err != nil {
		return dockerfile.File{}, buildError(err)
	}
	args := map[string]string{}
	for _, arg := range f.args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			return dockerfile.File{}, usage.Errorf("--build-arg: %q is no NAME=VALUE", arg)
		}
		args[name] = value
	}
	file, err := dockerfile.Parse(string(text), args)
	if err != nil {
		return file, sandbox.Errorf(sandbox.Invalid, "%s: %v", path, err)
	}
	if f.start != "" {
		file.Start = f.start
	}
	return file, nil
}

// reach is what a build's steps may reach.
type reach struct {
	network string
	policy  *policy.Policy
}

// reach reads the flags that say so, and checks them as the daemon will.
func (f buildFlags) reach(note func(string)) (r reach, err error) {
	if f.network == sandbox.NetworkOff && (len(f.policy.allow) > 0 || f.policy.policy != "") {
		return r, usage.Errorf("--network off can't go with --allow or --policy").WithHint("leave out --network")
	}
	if r.policy, err = launch.LoadPolicy(f.policy.policy, f.policy.allow, note); err != nil {
		return r, err
	}
	if r.network, r.policy, err = sandbox.ResolveNetwork(f.network, r.policy); err != nil {
		return r, err
	}
	if r.policy == nil {
		r.network = f.network
	}
	return r, sandbox.CheckPolicy(r.policy, nil)
}

func readPath(path string) ([]byte, error) {
	f, err := beneath.OpenInput(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(f)
}

// buildError is what build says of what it reads on this machine.
func buildError(err error) error {
	if link := usage.Link("build", err); link != nil {
		return link
	}
	return sandbox.Errorf(sandbox.Invalid, "%w", err)
}

func (a *app) templateBuild(ctx context.Context, f buildFlags, dir string) error {
	file, err := f.read(dir)
	if err != nil {
		return err
	}
	reach, err := f.reach(a.Note)
	if err != nil {
		return err
	}
	files, err := dockerfile.OpenContext(dir)
	if err != nil {
		return buildError(err)
	}
	defer files.Close()
	sent, err := readCopies(files, file.Steps)
	if err != nil {
		return err // before there is a build that would wait for it
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	ref, err := svc.RequestBuild(ctx, api.BuildRequest{Name: f.name, Tags: f.tags, CPUCount: f.cpus, MemoryMB: f.memory})
	if err != nil {
		return err
	}
	plan := api.BuildPlan{FromImage: file.From, Force: f.noCache, StartCmd: file.Start, ReadyCmd: f.ready, Network: reach.network, Policy: reach.policy}
	for _, c := range sent {
		if err := c.send(ctx, svc, ref.TemplateID, files); err != nil {
			return notBegun(ctx, svc, *ref, err)
		}
		plan.Steps = append(plan.Steps, c.step)
	}
	if err := svc.StartBuild(ctx, *ref, plan); err != nil {
		return notBegun(ctx, svc, *ref, err)
	}
	if err := a.watchBuild(ctx, svc, *ref); err != nil {
		return err
	}
	return a.Answer(ref, ref.TemplateID)
}

// readStep is a step, with the names that a COPY has in the context.
type readStep struct {
	step  api.BuildStep
	names []string
}

// readCopies makes steps of a file's, and reads what each COPY names.
func readCopies(files *dockerfile.Context, steps []dockerfile.Step) ([]readStep, error) {
	var all []readStep
	for _, st := range steps {
		c := readStep{step: api.BuildStep{Type: st.Type, Args: st.Args}}
		if st.Type == "COPY" {
			c.step.Args = []string{st.Src, st.Dest, st.Owner, st.Mode}
			var err error
			if c.names, err = files.Files(st.Src); err == nil {
				c.step.FilesHash, err = files.Hash(st, c.names)
			}
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "line %d: COPY: %v", st.Line, err)
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// send sends the files of a COPY, unless they are there.
func (c readStep) send(ctx context.Context, svc *client.Client, id string, files *dockerfile.Context) error {
	if c.step.FilesHash == "" {
		return nil
	}
	link, err := svc.FileLink(ctx, id, c.step.FilesHash)
	if err != nil || link.Present {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(files.Write(w, c.names)) }() // ends with r
	err = svc.SendFiles(ctx, link, r)
	r.CloseWithError(io.ErrClosedPipe)
	return err
}

// notBegun ends a build that was entered and would wait for good.
func notBegun(ctx context.Context, svc *client.Client, ref api.BuildRef, err error) error {
	cancel, done := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer done()
	return errors.Join(err, svc.CancelBuild(cancel, ref))
}

const (
	buildPoll   = 200 * time.Millisecond
	cancelLimit = 30 * time.Second
)

// watchBuild tells what a build says until it has ended, and cancels it where
// ctx ends first.
func (a *app) watchBuild(ctx context.Context, svc *client.Client, ref api.BuildRef) error {
	tick := time.NewTicker(buildPoll)
	defer tick.Stop()
	for offset := 0; ; {
		st, err := svc.BuildStatus(ctx, ref, offset)
		if err == nil {
			offset += len(st.LogEntries)
			for _, e := range st.LogEntries {
				if e.Level != levelOfFailure { // the error says that
					a.NoteReason("build", e.Message)
				}
			}
			if len(st.LogEntries) == 0 && st.Status == "ready" {
				return nil
			}
			if len(st.LogEntries) == 0 && st.Status == "error" {
				return buildFailure(st, a.typed)
			}
		} else if ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			cancel, done := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
			defer done()
			return errors.Join(context.Cause(ctx), svc.CancelBuild(cancel, ref))
		}
	}
}

// levelOfFailure is the level of the one line of a build's log that says why it failed.
const levelOfFailure = "error"

func buildFailure(st *api.BuildStatus, typed []string) error {
	if st.Reason == nil {
		return sandbox.Errorf(sandbox.Invalid, "the build failed").WithHint("carboy template logs NAME")
	}
	e := sandbox.Errorf(sandbox.Invalid, "build: %s", strings.TrimSuffix(st.Reason.Message, " ("+st.Reason.Hint+")"))
	e.Hint = typedBuild(st.Reason.Hint, typed)
	return e
}

func templateListing() *listing[api.Template] {
	return &listing[api.Template]{
		noun:    "template",
		short:   "List templates",
		long:    "All of yours are listed, the newest first.",
		get:     (*client.Client).Templates,
		columns: []string{"NAME", "ID", "STATUS", "CREATED"},
		row: func(t *api.Template, now time.Time) []string {
			return []string{strings.Join(t.Aliases, ","), t.TemplateID, t.BuildStatus, console.Ago(t.CreatedAt, now)}
		},
	}
}

func (a *app) templateRmCommand() *cobra.Command {
	return removal{
		noun:     "template",
		arg:      "NAME",
		example:  "web",
		short:    "Remove templates",
		long:     "Builds under way are ended. Sandboxes that were made from it go on.",
		remove:   (*client.Client).RemoveTemplate,
		complete: a.completeTemplate(-1),
	}.command(a)
}
