package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/learn"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// learnOptions are what policy learn was told.
type learnOptions struct {
	run       runOptions
	from      string
	output    string
	force     bool
	keepGoing bool
	presets   bool
	ran       string // the sandbox that was run, whose record is kept for a day
}

func (a *app) policyLearnCommand() *cobra.Command {
	var o learnOptions
	cmd := &cobra.Command{
		Use:   "learn [flags] [--] [COMMAND] [ARG...]",
		Short: "Run a command with everything public open, and write the least policy for it",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.from != "" {
				return a.policyLearnFrom(cmd.Context(), &o, args)
			}
			if err := a.fromProject(cmd.Context(), cmd.Flags(), &o.run.spec); err != nil {
				return err
			}
			if launch.NeedsCommand(o.run.spec.Image, o.run.entrypoint) {
				if err := someArgs(1, "COMMAND")(cmd, args); err != nil {
					return err
				}
			}
			noteTerminal(cmd, &o.run.command)
			return a.policyLearn(cmd.Context(), &o, args)
		},
		ValidArgsFunction: completeCommand,
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	fs.StringVarP(&o.output, "output", "o", "", "`FILE` write the policy to FILE (default stdout)")
	fs.BoolVar(&o.force, "force", false, "overwrite a FILE that says something else")
	fs.StringVar(&o.from, "from", "", "`RECORD` run nothing, and learn from a sandbox's record, by its name, or from a saved one, by its path")
	fs.BoolVar(&o.presets, "presets", false, "take a preset wherever one covers all that was asked of its hosts")
	fs.BoolVar(&o.keepGoing, "keep-going", false, "write the policy even if the command fails, or the record is not whole")
	o.run.add(fs, addAttached)
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `The command runs as with carboy run, whose flags these are. It may reach whatever is
public, beside what --policy and --allow say, and all that it asks for is recorded;
closed addresses stay closed. Then the least policy that lets it pass is written, with
comments on what sends data or is wide, and what was left out. The record is replayed
against it, which proves it. Read it before you use it: the command chose what is in it.

Without -o the policy goes to stdout, and what the command writes there to stderr. A
FILE that is there and says something else is left as it is, and the difference shown.
Nothing is written if the command fails; --keep-going writes what was seen until then.

--from learns from what a sandbox did already: NAME, whose record is kept for a day,
or a path or - for what carboy net log --json wrote. Say with --policy and --allow what
it had.`,
		examples: []string{
			"carboy policy learn --workspace . -o policy.yaml -- npm ci",
			"carboy policy learn --allow anthropic --secret ANTHROPIC_API_KEY -- claude -p 'fix the tests'",
			"carboy policy learn --from web -o policy.yaml",
			"carboy run --policy policy.yaml --workspace . -- npm ci",
		},
		exits: exitDocsCommand[:],
	})
}

// policyLearn runs a command, and learns from what it did.
func (a *app) policyLearn(ctx context.Context, o *learnOptions, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	if old, _, err := o.there(); err == nil && old != nil && !o.toStdout() && !o.force {
		a.NoteReason("learned", shell.Word(o.output)+" is there: it is left as it is, and the difference shown, unless --force is given")
	}
	var base *policy.Policy
	var opened policy.Policy
	var secrets []string
	var rec *recorder
	o.run.adjust = func(req *launch.Request) error {
		base = req.Policy
		for _, arg := range o.run.spec.Secrets {
			name, _, _ := strings.Cut(arg, "=")
			secrets = append(secrets, name)
		}
		if err := openPublic(req); err != nil {
			return err
		}
		opened = *req.Policy
		return nil
	}
	o.run.made = func(svc *client.Client, sb *api.Sandbox) { rec, o.ran = record(ctx, svc, sb.ID), sb.Name }
	o.run.ended = func() { rec.over(ctx, opened) }
	out := a.Stdout
	if o.toStdout() {
		a.Stdout = a.Stderr // the policy alone is for stdout
	}
	err := a.run(ctx, o.run, args)
	a.Stdout = out
	var code *exit.Error
	switch {
	case rec == nil:
		return err
	case err != nil && (!errors.As(err, &code) || errors.Is(err, relay.ErrInterrupted)):
		rec.stop()
		return err
	}
	records, rerr := rec.all(ctx)
	switch {
	case rerr != nil:
		return rerr
	case err != nil && !o.keepGoing:
		a.Note("policy learn: the command failed, so no policy is written; --keep-going writes what was seen until then")
		return err
	}
	if lerr := a.learnFrom(o, records, learn.Options{Base: base, Secrets: secrets, Presets: o.presets, Open: rec.open}); lerr != nil {
		return lerr
	}
	return err
}

// openPublic lets a request's sandbox reach everything public, and has it read.
func openPublic(req *launch.Request) error {
	p := policy.Policy{}
	if req.Policy != nil {
		p = *policy.Clone(req.Policy)
	}
	if req.Network == sandbox.NetworkOff {
		return usage.Errorf("policy learn: --network off leaves nothing to be learned").WithHint("leave out --network")
	}
	p.Default = policy.DefaultRead
	req.Network, req.Policy = sandbox.NetworkOn, &p
	return nil
}

func (o *learnOptions) toStdout() bool { return o.output == "" || o.output == "-" }

// check refuses what could not be written in the end, before anything runs.
func (o *learnOptions) check() error {
	if o.force && o.toStdout() {
		return usage.Errorf("policy learn: --force is for -o FILE").WithHint("leave out --force")
	}
	if o.toStdout() {
		return nil
	}
	st, err := os.Stat(filepath.Dir(o.output))
	if err != nil {
		return usage.Path("policy learn: -o", o.output, err)
	}
	if !st.IsDir() {
		return usage.Errorf("policy learn: -o: %s is not in a directory", o.output)
	}
	if st, err = os.Stat(o.output); err == nil && !st.Mode().IsRegular() {
		return usage.Errorf("policy learn: -o: %s is no regular file", o.output)
	}
	if err := unix.Access(filepath.Dir(o.output), unix.W_OK); err != nil {
		return usage.Errorf("policy learn: -o: no file can be made in %s: %v", shell.Word(filepath.Dir(o.output)), err)
	}
	if o.force {
		return nil
	}
	_, _, err = o.there()
	return err
}

// there is the policy that FILE holds already. What is no policy is an error.
func (o *learnOptions) there() (p *policy.Policy, what string, err error) {
	what = "policy learn: " + shell.Word(o.output)
	if _, err := os.Lstat(o.output); errors.Is(err, fs.ErrNotExist) {
		return nil, what, nil
	}
	text, err := launch.ReadPolicyFile(what, o.output)
	if err != nil {
		return nil, what, err
	}
	old, err := policy.Parse(text)
	if err != nil {
		return nil, what, usage.Errorf("%s: it is there, and is no policy", what).WithHint("another name for -o, or --force")
	}
	return &old, what, nil
}

// recorder keeps what a sandbox tries to reach, from its start on: what its gate keeps is
// bounded.
type recorder struct {
	svc     *client.Client
	id      string
	cancel  context.CancelFunc
	done    chan struct{}
	records []api.NetRecord
	open    int // connections that did not end with the command
}

// over ends what the command left open, for a connection is recorded when it ends: the
// policy is made to deny everything, which cuts it.
func (r *recorder) over(ctx context.Context, p policy.Policy) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), overWait)
	defer cancel()
	_, err := r.svc.SetPolicy(ctx, r.id, learn.Over(p))
	tick := time.NewTicker(overLook)
	defer tick.Stop()
	for ; err == nil; <-tick.C {
		var u *api.Usage
		if u, err = r.svc.Usage(ctx, r.id); err != nil {
			break
		}
		if r.open = u.Connections; r.open == 0 {
			return
		}
	}
	r.open = max(r.open, 1) // as far as is known
}

const (
	// overWait bounds how long it is waited for what a command left open.
	overWait = 5 * time.Second
	overLook = 20 * time.Millisecond
)

// recordedLast bounds how long what is left of a sandbox's record is read.
const recordedLast = time.Minute

func record(ctx context.Context, svc *client.Client, id string) *recorder {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &recorder{svc: svc, id: id, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		_ = r.read(ctx, client.NetLogOptions{Follow: true}) // what it leaves is read at the end
	}()
	return r
}

func (r *recorder) read(ctx context.Context, o client.NetLogOptions) error {
	for rec, err := range r.svc.NetLog(ctx, r.id, o) {
		if err != nil {
			return err
		}
		if len(r.records) == learn.MaxRecords {
			return usage.Errorf("policy learn: more than %d records", learn.MaxRecords)
		}
		r.records = append(r.records, rec)
	}
	return nil
}

func (r *recorder) stop() {
	r.cancel()
	<-r.done
}

// all is the whole record of a sandbox that has ended: what was followed, and what came
// since, of which the last thousand are kept. More would be missed, and be said to be.
func (r *recorder) all(ctx context.Context) ([]api.NetRecord, error) {
	r.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordedLast)
	defer cancel()
	var after uint64
	if n := len(r.records); n > 0 {
		after = r.records[n-1].Seq
	}
	// Nothing is kept of one that tried nothing.
	if err := r.read(ctx, client.NetLogOptions{After: after}); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return nil, fmt.Errorf("read what was recorded: %w", err)
	}
	return r.records, nil
}

// secretsIn are the names of secrets that records say were put in.
func secretsIn(records []api.NetRecord) (names []string) {
	for i := range records {
		for _, s := range records[i].Secrets {
			if !slices.Contains(names, s) {
				names = append(names, s)
			}
		}
	}
	return names
}
