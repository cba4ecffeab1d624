package cli

import (
	"context"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// refusedWait bounds how long the end of a run waits for its records.
	refusedWait = 2 * time.Second
	// maxRefused bounds how many of them are looked at.
	maxRefused = 10_000
)

// tellRefused says at the end of a run what it was not allowed to reach, and
// which flags would allow that.
func (a *app) tellRefused(ctx context.Context, svc *client.Client, sb *api.Sandbox) {
	if sb.Network == sandbox.NetworkOff || sb.Network == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusedWait)
	defer cancel()
	var records []netlog.Record
	for rec, err := range svc.NetLog(ctx, sb.ID, client.NetLogOptions{Denied: true}) {
		if err != nil {
			a.Note("what was refused can't be read: " + err.Error())
			break
		}
		if records = append(records, rec); len(records) == maxRefused {
			break
		}
	}
	if len(records) == 0 {
		return
	}
	refused, others := netlog.Summary(records)
	set := a.policyOf(ctx, svc, sb)
	for i := range refused {
		refused[i].Flag = proposable(refused[i], set)
	}
	if text := refusedText(refused, others); text != "" {
		a.NoteReason("refused", text)
	}
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

// proposable leaves of the flags that would allow r those that may be proposed:
// none that opens what is closed, and none for a host that set is about already.
func proposable(r netlog.Refused, set *policy.Set) string {
	if set == nil || r.Flag == "" || set.Name(r.Host).Allowed() {
		return ""
	}
	var left []string
	for arg := range strings.SplitSeq(strings.TrimPrefix(r.Flag, "--allow "), " --allow ") {
		rules, err := policy.ParseAllow(arg)
		if err != nil {
			continue
		}
		if opens, err := policy.Compile(policy.Policy{Rules: rules}, nil); err != nil || len(opens.Opened(nil)) > 0 {
			continue
		}
		left = append(left, "--allow "+arg)
	}
	return strings.Join(left, " ")
}

// refusedText says in one line which hosts a run did not reach, and what would
// have let it; "" where there were none.
func refusedText(refused []netlog.Refused, others int) string {
	if len(refused) == 0 {
		return ""
	}
	hosts := make([]string, 0, len(refused)+1)
	var flags []string
	for _, r := range refused {
		hosts = append(hosts, r.Host)
		flags = append(flags, nonEmpty(r.Flag)...)
	}
	if others > 0 {
		hosts = append(hosts, console.Count(others, "other"))
	}
	text := "refused: " + strings.Join(hosts, ", ")
	if len(flags) > 0 {
		text += "; to allow: " + strings.Join(flags, " ")
	}
	return text
}
