package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) podCommand() *cobra.Command {
	cmd := a.nounCommand("pod", "Have agents share a workspace, each with its own part of it", "carboy pod ls")
	cmd.AddCommand(
		a.podSpawnCommand(), a.podSendCommand(), a.podReadCommand(), a.podAttachCommand(), a.podStopCommand(),
		podListing().command(a), a.podTreeCommand(), a.podInspectCommand(),
	)
	return setHelp(cmd, docs{
		long: `A pod is an agent in a sandbox of its own that works on another's workspace, a volume. It may write
what it was given of it, and nothing else there; its parent can't write that until the pod has stopped.
The walls hold both to it, whatever runs in them. Pods spawn others in the same way.`,
		examples: []string{
			"carboy volume import . crate && carboy create --name lead --volume crate:/workspace",
			"carboy pod spawn --scope docs:write --task 'Write the docs.' lead writer -- claude -p {}",
			"carboy pod read --follow writer", "carboy pod stop writer", "carboy volume diff crate",
		},
		exits: exitDocsPlain[:],
	})
}

// podFlags are what a pod is spawned with.
type podFlags struct {
	req    api.PodRequest
	scope  []string
	allow  []string
	limits api.Limits
	budget api.PodBudget
	pods   int64 // of the budget
	depth  int64
	spawns int64 // how many its programs may have spawned
	env    launch.Env
	ttl    time.Duration
}

func (a *app) podSpawnCommand() *cobra.Command {
	var f podFlags
	cmd := &cobra.Command{
		Use:   "spawn [flags] PARENT NAME -- COMMAND...",
		Short: "Start a pod with a part of its parent's workspace, and give it its task",
		Args: func(cmd *cobra.Command, args []string) error {
			return someArgs(3, "PARENT", "NAME", "COMMAND")(cmd, args)
		},
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			f.req.Parent, f.req.Name, f.req.Command = args[0], args[1], args[2:]
			return a.podSpawn(ctx, svc, &f)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&f.scope, "scope", nil, "`PATH:write|read` give it that directory of the workspace; . is all of it")
	fs.StringVar(&f.req.Task, "task", "", "`TEXT` what it is to do; - reads it from stdin")
	fs.BoolVar(&f.req.EndWriters, "end-writers", false, "end what runs in the parent and could go on writing there")
	fs.Var(choiceValue{&f.req.Network, []string{sandbox.NetworkOff, "parent"}}, "network", "`NETWORK` off, or parent: the parent's, with its rules and secrets"+isDefault(sandbox.NetworkOff))
	fs.StringArrayVar(&f.allow, "allow", nil, "`WHAT` let it reach that, which its parent has to reach, and nothing else")
	fs.StringArrayVar(&f.req.Secrets, "secret", nil, "`NAME` let its requests have that secret of its parent's")
	fs.BoolVar(&f.req.Protocol, "protocol", false, "COMMAND speaks the pods' protocol, at the socket that CARBOY_POD_SOCKET names")
	fs.StringVar(&f.req.Isolation, "isolation", "", "`WALL` a stronger wall than the parent's"+isDefault("the parent's"))
	fs.Var(cpusValue{&f.limits.CPUs}, "cpus", "`N` how many processors it may use"+isDefault("as many as the parent"))
	fs.Var(sizeValue{&f.limits.Memory}, "memory", "`SIZE` how much memory"+isDefault("as much as the parent"))
	fs.Var(countValue{&f.limits.PIDs}, "pids", "`N` how many processes and threads"+isDefault("as many as the parent"))
	fs.Var(durationValue{&f.ttl}, "ttl", "`DURATION` stop it after that long"+isDefault("never before the parent"))
	fs.Var(countValue{&f.spawns}, "may-spawn", "`N` let its programs spawn up to N pods at once, by tools at its gate")
	fs.Var(countValue{&f.pods}, "max-pods", "`N` how many pods there may be below it at once")
	fs.Var(countValue{&f.depth}, "max-depth", "`N` how many may stand one below the other there")
	fs.Var(cpusValue{&f.budget.CPUs}, "max-cpus", "`N` how many processors they may have together")
	fs.Var(sizeValue{&f.budget.Memory}, "max-memory", "`SIZE` how much memory they may have together")
	fs.Var(countValue{&f.budget.PIDs}, "max-pids", "`N` how many processes and threads they may have together")
	addCwd(fs, &f.req.Cwd)
	addEnv(fs, &f.env)
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `PARENT is a pod, or a sandbox whose workspace is a volume. NAME is the pod's, and its sandbox's.
COMMAND is run there at each turn: what the pod is given takes the place of {}, or is its standard input;
what it prints is what the pod says.

What is delegated to write has to be within what the parent may write, and no other pod's. From then
on the parent can only read it. A process of the parent that could go on writing there, by what it has
open or works in, is in the way: it is named, nothing is changed, and the exit code is 125.
The pod can read the whole workspace. It has the parent's image and user, and nothing else of it: no other
mounts, no environment, and no network unless --network says so. Its limits are never above the parent's.`,
		examples: []string{
			"carboy pod spawn --scope docs:write --task 'Write the docs.' lead writer -- claude -p {}",
			"carboy pod spawn --scope .:read --task - lead reviewer -- sh -c 'review' < task.md",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) podSpawn(ctx context.Context, svc *client.Client, f *podFlags) (err error) {
	for _, s := range f.scope {
		rule, err := parseScope(s)
		if err != nil {
			return err
		}
		f.req.Scope = append(f.req.Scope, rule)
	}
	if len(f.req.Scope) == 0 {
		return usage.Errorf("pod spawn: --scope is missing").WithHint("--scope docs:write, or --scope .:read")
	}
	if f.req.Task, err = a.podText("--task", f.req.Task); err != nil {
		return err
	}
	if f.req.Env, err = f.env.Collect(a.LookupEnv); err != nil {
		return err
	}
	if len(f.allow) > 0 {
		if f.req.Policy, err = launch.LoadPolicy("", f.allow, a.Note); err != nil {
			return err
		}
	}
	if f.limits != (api.Limits{}) {
		f.req.Limits = &f.limits
	}
	f.budget.Pods, f.budget.Depth, f.req.MaySpawn = int(f.pods), int(f.depth), int(f.spawns)
	if f.budget != (api.PodBudget{}) {
		f.req.Budget = &f.budget
	}
	f.req.TTLSeconds = int64((f.ttl + time.Second - 1) / time.Second)
	res, err := svc.SpawnPod(ctx, f.req)
	if err != nil {
		return err
	}
	for _, what := range res.Ended {
		a.Note("ended " + what)
	}
	if len(res.Pod.Others) > 0 {
		a.Note("nothing keeps who is no pod from writing there: " + strings.Join(res.Pod.Others, ", "))
	}
	return a.Answer(res, res.Pod.Name)
}

// parseScope reads "docs:write".
func parseScope(s string) (api.PodRule, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 1 || s[i+1:] != "read" && s[i+1:] != "write" {
		return api.PodRule{}, usage.Errorf("--scope %s: it takes a directory of the workspace, a colon, and write or read", term.Escape(s)).
			WithHint("--scope docs:write")
	}
	return api.PodRule{Target: s[:i], Permission: s[i+1:]}, nil
}

// podText is what a pod is given: stdin for "-".
func (a *app) podText(what, text string) (string, error) {
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(a.Stdin, maxPodText+1))
		if err != nil {
			return "", fmt.Errorf("read stdin: %w", err)
		}
		text = string(b)
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", usage.Errorf("%s: it says nothing", what).WithHint("- reads it from stdin")
	case len(text) > maxPodText:
		return "", usage.Errorf("%s: it has more than %d bytes", what, maxPodText)
	}
	return text, nil
}

const maxPodText = 512 << 10

func (a *app) podSendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send [flags] NAME MESSAGE",
		Short: "Give a pod its next task",
		Args:  exactArgs("NAME", "MESSAGE"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			text, err := a.podText("MESSAGE", args[1])
			if err != nil {
				return err
			}
			if err := svc.SendToPod(ctx, args[0], text); err != nil {
				return err
			}
			return a.Answer(struct {
				Name string `json:"name"`
			}{args[0]}, fmt.Sprintf("sent message to `%s`", args[0]))
		}),
		ValidArgsFunction: a.completePod(),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Its command is run again, with MESSAGE; - reads that from stdin. A pod whose sandbox was stopped is started.
One that is still at its last task is an error, with the exit code 125.`,
		examples: []string{"carboy pod send writer 'And an index.'"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) podReadCommand() *cobra.Command {
	var all, follow bool
	cmd := &cobra.Command{
		Use:   "read [flags] NAME",
		Short: "Show what a pod has said since it was read last",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.podRead(ctx, svc, args[0], all, follow)
		}),
		ValidArgsFunction: a.completePod(),
	}
	cmd.Flags().BoolVar(&all, "all", false, "show all that is kept")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the pod has done what it was given")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What pods say goes to stdout, with control characters escaped on a terminal. A turn that did not go
well is a note on stderr, and with --follow the exit code 1. Of each pod the newest 8 MiB at least are kept, until it is stopped.`,
		examples: []string{"carboy pod read writer", "carboy pod read --follow writer"},
		exits: []exitDoc{
			{"0", "done"},
			{"1", "with --follow: the pod's turn did not go well"},
			{"125", "carboy failed, or was used wrongly"},
		},
	})
}

func (a *app) podRead(ctx context.Context, svc *client.Client, name string, all, follow bool) error {
	from := -1
	if all {
		from = 0
	}
	failed := ""
	for first := true; ; first = false {
		out, err := svc.PodOutput(ctx, name, from, follow)
		if err != nil {
			return err
		}
		if a.JSON {
			err = a.WriteJSON(out)
		} else {
			err = a.podSays(out.Text)
		}
		if err != nil {
			return err
		}
		if from >= 0 {
			from = out.Next
		}
		failed = cmp.Or(out.Failed, failed)
		if out.More || follow && (out.Text != "" || out.Status == "running") {
			continue
		}
		if failed != "" {
			a.Note(fmt.Sprintf("pod `%s`: %s", name, failed))
			if follow {
				return &exit.Error{Code: 1}
			}
		}
		if first && out.Text == "" && failed == "" && !a.JSON {
			a.Note(fmt.Sprintf("pod `%s` %s; no new assistant text", name, out.Status))
		}
		return nil
	}
}

// podSays writes what a pod has said.
func (a *app) podSays(text string) error {
	b := []byte(text)
	if console.IsTerminal(a.Stdout) {
		b = term.EscapeText(b)
	}
	_, err := a.Stdout.Write(b)
	return err
}

func (a *app) podStopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop [flags] NAME...",
		Short: "End pods, and give their parents back what they had",
		Args:  someArgs(1, "NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return each(a, args, func(name string) (*api.PodStopped, error) {
				res, err := svc.StopPod(ctx, name)
				if err != nil {
					return nil, err
				}
				return res, nil
			}, func(res *api.PodStopped) error { return a.PrintLine(res.Summary) })
		}),
		ValidArgsFunction: a.completePod(),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What runs in a pod's sandbox is ended and the sandbox removed, with what the pod said; what it wrote to the
workspace stays. Its own pods go on, and are its parent's.`,
		examples: []string{"carboy pod stop writer"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) podTreeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tree [flags]",
		Short: "Show who spawned whom",
		Args:  exactArgs(),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, _ []string) error {
			list, err := svc.Pods(ctx)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.WriteJSON(list)
			}
			for _, p := range list {
				if p.Parent == "" {
					if err := a.podBranch(list, p, ""); err != nil {
						return err
					}
				}
			}
			return nil
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "Behind each name stands what it can write to now.",
		examples: []string{"carboy pod tree"},
		exits:    exitDocsPlain[:],
	})
}

// podBranch writes a pod, and those below it.
func (a *app) podBranch(list []api.Pod, p api.Pod, indent string) error {
	line := indent + p.Name + "  " + podState(&p)
	if len(p.Writable) > 0 {
		line += "  writes " + strings.Join(p.Writable, " ")
	}
	if err := a.PrintLine(line); err != nil {
		return err
	}
	for _, name := range p.Children {
		i := slices.IndexFunc(list, func(c api.Pod) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		if err := a.podBranch(list, list[i], indent+"  "); err != nil {
			return err
		}
	}
	return nil
}

func podListing() *listing[api.Pod] {
	return &listing[api.Pod]{
		noun:  "pod",
		short: "List pods",
		long: `STATE is stopped for one whose sandbox is gone: its parent has back what it had. SCOPE is what it was
given, and WRITES what it can write to now: what its own pods have of that is theirs.`,
		get:     (*client.Client).Pods,
		columns: []string{"NAME", "PARENT", "STATE", "TURNS", "CREATED", "SCOPE", "WRITES"},
		row: func(p *api.Pod, now time.Time) []string {
			return []string{
				p.Name, p.Parent, podState(p), podTurns(p), console.Ago(p.CreatedAt, now), scopeText(p.Scope), strings.Join(p.Writable, " "),
			}
		},
	}
}

// podTurns is how many turns a pod has had; one that speaks the protocol itself does not say.
func podTurns(p *api.Pod) string {
	if p.Protocol {
		return "-"
	}
	return fmt.Sprint(p.Turns)
}

// podState is one word for how a pod is.
func podState(p *api.Pod) string {
	switch {
	case p.State != "live":
		return p.State
	case p.Liveness == "gone":
		return "stopped"
	case p.Status != "":
		return p.Status
	}
	return p.Liveness
}

func scopeText(rules []api.PodRule) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.Permission + ":" + r.Target
	}
	return strings.Join(texts, ", ")
}

func (a *app) podInspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect [flags] NAME",
		Short: "Show what a pod may do, and what it does",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			p, err := svc.Pod(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.WriteJSON(p)
			}
			var t console.Table
			for _, row := range [][2]string{
				{"name", p.Name},
				{"parent", p.Parent},
				{"state", podState(p)},
				{"sandbox", p.Sandbox},
				{"volume", p.Volume},
				{"scope", scopeText(p.Scope)},
				{"writes", strings.Join(p.Writable, " ")},
				{"pods", strings.Join(p.Children, " ")},
				{"no pods", strings.Join(p.Others, " ")},
				{"command", term.Escape(strings.Join(p.Command, " "))},
				{"turns", podTurns(p)},
				{"limits", podLimits(p)},
				{"budget", budgetText(p.Budget)},
				{"created", when(p.CreatedAt, a.Now())},
				{"ends", endsText(p.Until, a.Now())},
			} {
				if row[1] != "" {
					t.Row(row[0], row[1])
				}
			}
			return t.Write(a.Stdout)
		}),
		ValidArgsFunction: a.completePod(),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		examples: []string{"carboy pod inspect writer", "carboy pod inspect --json writer"},
		exits:    exitDocsPlain[:],
	})
}

func podLimits(p *api.Pod) string {
	if p.Limits == nil {
		return "" // its sandbox has them
	}
	return limitsLong(*p.Limits)
}

func endsText(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return console.In(t, now)
}

// budgetText is what the pods below one may have together.
func budgetText(b *api.PodBudget) string {
	if b == nil {
		return ""
	}
	var parts []string
	for _, part := range []struct {
		has  bool
		text string
	}{
		{b.Pods > 0, fmt.Sprintf("%d pods", b.Pods)},
		{b.Depth > 0, fmt.Sprintf("%d deep", b.Depth)},
		{b.CPUs > 0, fmt.Sprintf("%g cpus", b.CPUs)},
		{b.Memory > 0, term.FormatSize(b.Memory) + " memory"},
		{b.PIDs > 0, fmt.Sprintf("%d processes", b.PIDs)},
	} {
		if part.has {
			parts = append(parts, part.text)
		}
	}
	return strings.Join(parts, ", ")
}

// completePod completes the name of a pod.
func (a *app) completePod() completer {
	return completing(a, (*client.Client).Pods, func(p *api.Pod) string { return p.Name })
}
