package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// setFlags are those of set.
type setFlags struct {
	limits   api.ChangeLimits
	network  string
	policy   policySource
	add      bool
	ttl      *time.Duration
	onExpiry string
	labels   []string
	unlabel  []string
}

func (a *app) setCommand() *cobra.Command {
	var f setFlags
	cmd := &cobra.Command{
		Use:   "set [flags] NAME",
		Short: "Change the limits, network or end of a sandbox that is there",
		Args:  exactArgs("NAME"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.set(ctx, args[0], &f)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	f.addTo(cmd.Flags())
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `What can change at once does, and the rest at the next start: a line for each says
which. Memory, processors and processes change at once; a disk grows at the next start;
a network that is there changes at once, and comes to a sandbox without one at its next
start. --network off lets nothing through any more. --allow alone is added to the rules
that there are; --policy and --network replace them. With a mistake nothing is changed.`,
		examples: []string{
			"carboy set web --memory 4g --cpus 2",
			"carboy set web --allow npm",
			"carboy set web --disk 20g && carboy stop web && carboy start web",
		},
		exits: exitDocsPlain[:],
	})
}

func (f *setFlags) addTo(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.Var(cpusValue{&f.limits.CPUs}, "cpus", "`N` how many processors it may use, such as 0.5")
	fs.Var(sizeValue{&f.limits.Memory}, "memory", "`SIZE` how much memory, such as 512m or 1g")
	fs.Var(countValue{&f.limits.PIDs}, "pids", "`N` how many processes and threads")
	fs.Var(sizeValue{&f.limits.Disk}, "disk", "`SIZE` how much it may write; a disk can only grow")
	fs.Var(choiceValue{&f.network, []string{sandbox.NetworkOff, sandbox.NetworkOn}}, "network", "`NETWORK` off, or on: the public internet")
	f.policy.add(fs)
	fs.BoolVar(&f.add, "add", false, "with --policy: keep the rules that there are, and add these")
	fs.Var(ttlValue{&f.ttl}, "ttl", "`DURATION` stop it that long from now, such as 90s, 30m or 2h; or never")
	fs.Var(choiceValue{&f.onExpiry, []string{string(sandbox.OnExpiryStop), string(sandbox.OnExpiryPause), string(sandbox.OnExpiryRemove)}}, "on-expiry", "`WHAT` what the end of its --ttl does: stop, pause or remove it")
	fs.StringArrayVar(&f.labels, "label", nil, "`KEY=VALUE` attach a label")
	fs.StringArrayVar(&f.unlabel, "remove-label", nil, "`KEY` take a label away")
}

// ttlValue is a flag that holds a duration or never, which is zero.
type ttlValue struct{ d **time.Duration }

func (v ttlValue) String() string { return "" }
func (v ttlValue) Type() string   { return "duration" }
func (v ttlValue) Set(s string) error {
	d := new(time.Duration)
	if s != "never" {
		if err := (durationValue{d}).Set(s); err != nil {
			return err
		}
	}
	*v.d = d
	return nil
}

func (a *app) set(ctx context.Context, name string, f *setFlags) error {
	req, err := f.request(a.Note)
	if err != nil {
		return err
	}
	if f.isNothing(&req) {
		return usage.Errorf("set: what to change is missing").WithHint("carboy set %s --memory 4g, or carboy set --help", shell.Word(name))
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	res, err := svc.Set(ctx, name, req)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(res)
	}
	return a.setText(res)
}

// adds reports whether the rules are added to those that there are: what a line names
// is, and a whole policy is not unless it is said.
func (f *setFlags) adds() bool {
	return f.add || len(f.policy.allow) > 0 && f.policy.policy == "" && f.network == ""
}

// request is what f asks for, as far as that is known without the daemon.
func (f *setFlags) request(note func(string)) (req api.ChangeRequest, err error) {
	p, err := launch.LoadPolicy(f.policy.policy, f.policy.allow, note)
	if err != nil {
		return req, err
	}
	switch {
	case f.network == sandbox.NetworkOff && p != nil:
		return req, usage.Errorf("--network off can't go with --allow or --policy").WithHint("leave out --network")
	case f.add && p == nil:
		return req, usage.Errorf("set: --add needs --allow or --policy")
	case p != nil:
		if _, p, err = sandbox.ResolveNetwork(f.network, p); err != nil {
			return req, err
		}
		if _, err := policy.Compile(*p, secretsOf(p)); err != nil {
			return req, sandbox.PolicyError("set", err)
		}
	}
	labels, err := launch.ParseLabels(f.labels)
	if err != nil {
		return req, err
	}
	req = api.ChangeRequest{Limits: f.limits, Network: f.network, Policy: p, Add: p != nil && f.adds(), OnExpiry: f.onExpiry}
	if f.ttl != nil {
		ms := f.ttl.Milliseconds()
		req.TTLMillis = &ms
	}
	set := func(k string, v *string) {
		if req.Labels == nil {
			req.Labels = map[string]*string{}
		}
		req.Labels[k] = v
	}
	for k, v := range labels {
		set(k, &v)
	}
	for _, k := range f.unlabel {
		if _, both := labels[k]; both {
			return req, usage.Errorf("--label and --remove-label: both name %s", shell.Word(k))
		}
		set(k, nil)
	}
	return req, nil
}

// isNothing reports whether nothing was asked for.
func (f *setFlags) isNothing(req *api.ChangeRequest) bool {
	return req.Limits == (api.ChangeLimits{}) && req.Network == "" && req.Policy == nil &&
		req.TTLMillis == nil && req.OnExpiry == "" && len(req.Labels) == 0
}

// setText writes a line for each thing that was set, and how the rest comes to
// hold.
func (a *app) setText(res *api.ChangeResult) error {
	var t console.Table
	t.Row("WHAT", "FROM", "TO", "WHEN")
	for _, s := range res.Changes {
		t.Row(s.What, s.From, s.To, s.When)
	}
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	for _, s := range res.Changes {
		if s.Note != "" {
			a.NoteReason("set", fmt.Sprintf("%s: %s", s.What, s.Note))
		}
	}
	later := slices.ContainsFunc(res.Changes, func(s api.Setting) bool { return s.When == sandbox.AtNextStart })
	if name := res.Sandbox.Name; later && res.Sandbox.State == string(sandbox.StateRunning) {
		return a.Hint(fmt.Sprintf("carboy stop %[1]s && carboy start %[1]s", name))
	}
	return nil
}

// nextRows tell what was set and does not hold yet.
func nextRows(t *console.Table, sb *api.Sandbox) {
	for _, p := range sb.Next {
		t.Row("next start", strings.TrimSpace(p.What+" "+p.To)+" ("+p.Why+")")
	}
}
