package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// When a change holds.
const (
	AtOnce      = "now"
	AtNextStart = "next start"
)

// Setting is one thing that was set.
type Setting struct {
	What, From, To string // in words
	When           string // AtOnce or AtNextStart
	Note           string // why not at once, or what does not follow yet
}

// settings say what became of ch.
func (ch Change) settings(before, after *Sandbox) []Setting {
	var out []Setting
	next := after.Next
	if next == nil {
		next = new(Next)
	}
	add := func(what, from, to string, later bool) {
		s := Setting{What: what, From: from, To: to, When: AtOnce, Note: next.Why[what]}
		if later {
			s.When = AtNextStart
		}
		out = append(out, s)
	}
	l := before.Spec.Limits
	if ch.CPUs != 0 {
		add(LimitCPUs, fmt.Sprintf("%g", l.CPUs), fmt.Sprintf("%g", ch.CPUs), next.CPUs != 0)
	}
	if ch.Memory != 0 {
		add(LimitMemory, SizeText(l.Memory), SizeText(ch.Memory), next.Memory != 0)
	}
	if ch.PIDs != 0 {
		add(LimitPIDs, fmt.Sprint(l.PIDs), fmt.Sprint(ch.PIDs), next.PIDs != 0)
	}
	if ch.Disk != 0 {
		add(LimitDisk, SizeText(l.Disk), SizeText(ch.Disk), next.Disk != 0)
	}
	if ch.Network != "" || ch.Policy != nil {
		if next.Network != "" {
			add("network", before.Spec.Network, networkText(next.Network, next.Policy), true)
		} else {
			add("network", networkText(before.Spec.Network, before.Spec.Policy), networkText(after.Spec.Network, after.Spec.Policy), false)
		}
	}
	if ch.TTL != nil {
		add("ttl", ttlText(before.Spec.TTL), ttlText(*ch.TTL), false)
	}
	if ch.OnExpiry != "" {
		add("on_expiry", string(before.Spec.OnExpiry), string(ch.OnExpiry), false)
	}
	for _, k := range slices.Sorted(maps.Keys(ch.Labels)) {
		to := ""
		if v := ch.Labels[k]; v != nil {
			to = *v
		}
		add("label "+k, before.Spec.Labels[k], to, false)
	}
	return out
}

// networkText is a network in words.
func networkText(network string, p *policy.Policy) string {
	if network == NetworkOff || network == "" {
		return NetworkOff
	}
	if p == nil || len(p.Rules)+len(p.Presets)+len(p.Services) == 0 && network == NetworkPolicy {
		return network + ", which lets nothing through"
	}
	if len(p.Services) > 0 {
		network += ", services " + strings.Join(p.Services, " ")
	}
	n := len(p.Rules) + len(p.Presets)
	if n == 1 {
		return network + ", 1 rule"
	}
	return fmt.Sprintf("%s, %d rules", network, n)
}

func ttlText(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return d.String()
}

// settingsText is a change in one line, for the log.
func settingsText(set []Setting) string {
	parts := make([]string, len(set))
	for i, s := range set {
		parts[i] = fmt.Sprintf("%s from %s to %s", s.What, quietText(s.From), quietText(s.To))
		if s.When == AtNextStart {
			parts[i] += " at its next start"
		}
	}
	return strings.Join(parts, "; ")
}

func quietText(s string) string { return cmp.Or(s, "nothing") }

// Pending lists what was set of sb and holds from its next start on, with why.
func (sb *Sandbox) Pending() []Setting {
	n := sb.Next
	if n == nil {
		return nil
	}
	var ch Change
	ch.CPUs, ch.Memory, ch.PIDs, ch.Disk, ch.Network = n.CPUs, n.Memory, n.PIDs, n.Disk, n.Network
	return ch.settings(sb, sb)
}
