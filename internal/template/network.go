package template

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	refusedWait = 10 * time.Second // for the records of a step that failed
	maxRefused  = 10_000           // of them that are looked at
)

// sayNetwork tells the log what steps may reach. What was asked for with the plan is
// part of the cache's key: with another network the same step may lead elsewhere.
func (r *run) sayNetwork() {
	what := r.rec.Network
	if what == "" {
		what = sandbox.NetworkOff
	}
	var rules []string
	if r.rec.Policy != nil {
		for _, rule := range r.rec.Policy.Rules {
			rules = append(rules, rule.ID)
		}
		rules = append(rules, r.rec.Policy.Presets...)
	}
	if len(rules) > 0 {
		what += ": " + strings.Join(rules, ", ")
	}
	r.say(levelInfo, "network %s", what)
	if r.plan.Network == "" && r.plan.Policy == nil {
		return
	}
	raw, _ := json.Marshal(r.rec.Policy) // it came as JSON
	r.at.Key = keyOf(r.at.Key, "network", r.rec.Network, string(raw))
}

var errEnough = errors.New("enough records")

// refused says which hosts the sandbox was refused since then, and the flags of a
// build that would allow them: a step that failed may have failed for that. "" where
// there were none.
func (r *run) refused(ctx context.Context, since time.Time) (text, hint string) {
	if r.sb == nil {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, refusedWait)
	defer cancel()
	var records []netlog.Record
	err := r.s.m.NetLog(ctx, r.caller, r.sb.ID, sandbox.NetLogOptions{Denied: true, Since: since}, func(rec netlog.Record) error {
		if records = append(records, rec); len(records) == maxRefused {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		r.s.log.Warn("read what a build was refused", "build", r.rec.ID, "error", err)
	}
	hosts, others := netlog.Summary(records)
	var names, flags []string
	for _, h := range hosts {
		name := term.Escape(h.Host)
		if h.Flag == "" && h.Why != "" {
			name += " (" + term.Escape(h.Why) + ")"
		}
		names = append(names, name)
		if flag := h.Flag; flag != "" {
			if preset := policy.PresetOf(strings.TrimPrefix(flag, "--allow ")); preset != "" {
				flag = "--allow " + preset
			}
			flags = append(flags, flag)
		}
	}
	switch {
	case len(names) == 0:
		return "", ""
	case others > 0:
		names = append(names, "others")
	}
	text = "; refused: " + strings.Join(names, ", ")
	if r.rec.Network == "" || r.rec.Network == sandbox.NetworkOff {
		text += ", for the build has no network"
	}
	if len(flags) > 0 {
		hint = "to allow: carboy template build " + strings.Join(unique(flags), " ")
	}
	return text, hint
}

// unique leaves the first of those that are alike, in their order.
func unique(words []string) []string {
	seen := map[string]bool{}
	kept := words[:0]
	for _, w := range words {
		if !seen[w] {
			kept = append(kept, w)
		}
		seen[w] = true
	}
	return kept
}
