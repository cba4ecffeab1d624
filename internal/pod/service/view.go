package service

import (
	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// ViewRules are rules as the API shows them.
func ViewRules(rules []scope.Rule) []api.PodRule {
	out := make([]api.PodRule, len(rules))
	for i, r := range rules {
		out[i] = api.PodRule{Target: r.Target, Permission: r.Permission.String(), Recursive: &r.Recursive}
	}
	return out
}

// View is a pod as the API shows it.
func View(p *Pod) api.Pod {
	out := api.Pod{
		Name: p.Name, Parent: p.Parent, Sandbox: p.Sandbox, Volume: p.Volume, State: string(p.State), Liveness: p.Liveness.String(), Status: p.Status,
		Turns: p.Turns, Scope: ViewRules(p.Allow), Writable: p.Writable, Children: p.Children, Others: p.Others, Command: p.Program.Command, CreatedAt: p.CreatedAt,
	}
	if p.Token != "" {
		out.Protocol, out.Limits, out.Until = p.Program.Native, &p.Bounds.Limits, p.Bounds.Until
	}
	if b := api.PodBudget(p.Bounds.Budget); b != (api.PodBudget{}) {
		out.Budget = &b
	}
	if out.Writable == nil {
		out.Writable = []string{}
	}
	if out.Children == nil {
		out.Children = []string{}
	}
	return out
}
