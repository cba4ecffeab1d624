package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
)

// records are those of the agent's network since it began.
func (g *agentRun) records(ctx context.Context) (records []netlog.Record) {
	ctx, cancel := context.WithTimeout(ctx, refusedWait)
	defer cancel()
	for rec, err := range g.svc.NetLog(ctx, g.sb.ID, client.NetLogOptions{Since: g.began}) {
		if err != nil {
			break
		}
		if records = append(records, rec); len(records) == maxRefused {
			break
		}
	}
	return records
}

// modelHosts are the hosts of its models.
func (g *agentRun) modelHosts() (hosts []string) {
	rules, err := g.grant.Rules()
	if err != nil {
		return nil
	}
	for i := range rules {
		hosts = append(hosts, rules[i].Hosts...)
	}
	return hosts
}

// refusedText names the hosts that were refused. Those that the program asks for in any
// case, and its model's own, count only where it failed, and those only where modelHint
// has told nothing.
func (g *agentRun) refusedText(records []netlog.Record, failed, told bool) string {
	models := g.modelHosts()
	records = slices.DeleteFunc(slices.Clone(records), func(r netlog.Record) bool {
		if slices.Contains(models, r.Host) {
			return !failed || told || r.Verdict == netlog.Allow
		}
		return !failed && slices.Contains(g.p.Plain.Quiet, r.Host)
	})
	hosts, others := netlog.Summary(records)
	var names []string
	for _, h := range hosts {
		names = append(names, h.Host)
	}
	if others > 0 {
		names = append(names, console.Count(others, "other"))
	}
	return strings.Join(names, ", ")
}

// modelHint says what to do where the model refused the key, or was not reached at all.
func (g *agentRun) modelHint(records []netlog.Record) string {
	hosts := g.modelHosts()
	var refused, lost string
	for i := range records {
		r := &records[i]
		switch {
		case !slices.Contains(hosts, r.Host):
		case r.Status >= 200 && r.Status < 300 && len(r.Secrets) > 0:
			return "" // it was let in
		case (r.Status == 401 || r.Status == 403) && len(r.Secrets) > 0:
			refused = fmt.Sprintf("%s refused %s (status %d): is it good? carboy secret rotate, or set another", r.Host, strings.Join(r.Secrets, ", "), r.Status)
		case len(r.Secrets) > 0 && g.mayRefuse(r):
			refused = fmt.Sprintf("%s refused all that came with %s (status %d), as it does where that is not good: carboy secret rotate, or set another", r.Host, strings.Join(r.Secrets, ", "), r.Status)
		case r.Protocol == "dns" && r.Verdict == netlog.Allow && r.Result != "" && !strings.HasPrefix(r.Result, "NOERROR"):
			lost = r.Host + " could not be found from this machine: is there a network?"
		case r.Code == "upstream_untrusted":
			lost = r.Host + " has a certificate that this machine does not trust: " + firstOf(r.Result, r.Reason)
		case r.Code == "upstream_failed":
			lost = r.Host + " could not be reached from this machine: " + firstOf(r.Result, r.Reason)
		}
	}
	return firstOf(refused, lost)
}

// mayRefuse reports whether a model's host says by that status that a key is not good.
func (g *agentRun) mayRefuse(r *netlog.Record) bool {
	return slices.ContainsFunc(g.grant.Ways, func(w *provider.Way) bool {
		rules, err := w.Policy()
		return err == nil && slices.Contains(w.Refuses, r.Status) &&
			slices.ContainsFunc(rules, func(rule policy.Rule) bool { return slices.Contains(rule.Hosts, r.Host) })
	})
}
