package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

const (
	// refusedWait bounds how long the end of a command waits for its records.
	refusedWait = 10 * time.Second
	// maxRefused bounds how many of them are looked at.
	maxRefused = 10_000
)

// refusals are what a command was not allowed to reach, or could not.
type refusals struct {
	hosts  []netlog.Refused
	others int
	none   bool   // the sandbox has no network
	next   bool   // but what was set of it, for its next start, allows one of hosts
	in     string // the name of a sandbox that stays; "" for that of a run
}

// tellRefused says at the end of a command what it was not allowed to reach since it
// began, and what to type to allow that. A sandbox that stays is changed; that of a
// run is asked for anew.
func (a *app) tellRefused(ctx context.Context, svc *client.Client, ref string, began time.Time, stays bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusedWait)
	defer cancel()
	var records []netlog.Record
	for rec, err := range svc.NetLog(ctx, ref, client.NetLogOptions{Since: began}) {
		if err != nil {
			// It ended with its command; or there is none of that name, which was said.
			if k := sandbox.KindOf(err); k != sandbox.NotFound && k != sandbox.Invalid && runs(ctx, svc, ref) {
				a.Note("what was refused can't be read: " + err.Error())
			}
			break
		}
		if records = append(records, rec); len(records) == maxRefused {
			break
		}
	}
	r := refusals{}
	if r.hosts, r.others = netlog.Summary(records); len(r.hosts) == 0 {
		return
	}
	sb, err := svc.Get(ctx, ref)
	if err != nil {
		return // it is gone, and so is what could be changed
	}
	r.none = sb.Network == sandbox.NetworkOff || sb.Network == ""
	if stays {
		r.in = sb.Name
	}
	set := a.policyOf(ctx, svc, sb)
	for i := range r.hosts {
		r.next = r.next || r.none && set != nil && (set.Name(r.hosts[i].Host).Allowed() || isGate(r.hosts[i]) && len(set.Services()) > 0)
		r.hosts[i].Flag = proposable(r.hosts[i], set)
	}
	a.NoteReason("refused", r.text())
}

// runs reports whether a sandbox is known to run.
func runs(ctx context.Context, svc *client.Client, ref string) bool {
	sb, err := svc.Get(ctx, ref)
	return err == nil && sb.State == string(sandbox.StateRunning)
}

// policyOf returns the policy under which a sandbox ran; nil where that is not
// known, and nothing is proposed then.
func (a *app) policyOf(ctx context.Context, svc *client.Client, sb *api.Sandbox) *policy.Set {
	p, err := svc.Policy(ctx, sb.ID)
	if err != nil {
		return nil
	}
	set, err := policy.Compile(*p, sb.Secrets)
	if err != nil {
		return nil
	}
	return set
}

// anyService is the flag for a service of the gate whose name is not known: a sandbox
// without a network did not come to call it.
const anyService = "--allow service:NAME"

func isGate(r netlog.Refused) bool { return r.Host == policy.GateHost }

// proposable leaves of the flags that would allow r those that may be proposed:
// none that opens what is closed, and none for a host that set is about already. A
// preset that is about the host stands for the host.
func proposable(r netlog.Refused, set *policy.Set) string {
	switch {
	case set != nil && isGate(r) && r.Flag+r.Why == "" && len(set.Services()) == 0:
		return anyService
	case set == nil || r.Flag == "" || set.Name(r.Host).Allowed():
		return ""
	}
	var left []string
	for arg := range strings.SplitSeq(strings.TrimPrefix(r.Flag, "--allow "), " --allow ") {
		p, err := policy.Allow(policy.Policy{}, arg)
		if err != nil {
			continue
		}
		if opens, err := policy.Compile(p, nil); err != nil || len(opens.Opened(nil)) > 0 {
			continue
		}
		if preset := policy.PresetOf(arg); preset != "" {
			arg = preset
		}
		left = append(left, "--allow "+arg)
	}
	return strings.Join(left, " ")
}

// text says in one line which hosts were not reached, why where they were allowed,
// and what to type to allow the others; "" where there were none.
func (r refusals) text() string {
	if len(r.hosts) == 0 {
		return ""
	}
	hosts := make([]string, 0, len(r.hosts)+1)
	var flags []string
	for _, h := range r.hosts {
		name := h.Host
		if h.Flag == "" && h.Why != "" {
			name += " (" + h.Why + ")"
		}
		hosts = append(hosts, name)
		if h.Flag != "" && !slices.Contains(flags, h.Flag) {
			flags = append(flags, h.Flag)
		}
	}
	if r.others > 0 {
		hosts = append(hosts, console.Count(r.others, "other"))
	}
	text := "refused: " + strings.Join(hosts, ", ")
	if r.none {
		verb := " was"
		if len(hosts) > 1 || r.others > 1 {
			verb = " were"
		}
		text = strings.Join(hosts, ", ") + verb + " asked for"
	}
	return text + r.mend(flags)
}

// mend is what to type so that what was refused is allowed, flags among that; "" where
// nothing helps.
func (r refusals) mend(flags []string) string {
	name := shell.Word(r.in)
	again := "carboy stop " + name + " && carboy start " + name
	allow := strings.Join(flags, " ")
	switch {
	case allow == "" && r.next && r.in != "":
		return "; allowed from its next start on: " + again
	case allow == "":
		return ""
	case r.in == "":
	case r.none:
		allow = "carboy set " + name + " " + allow + " && " + again
	default:
		allow = "carboy set " + name + " --add " + allow
	}
	return "; to allow: " + allow
}
