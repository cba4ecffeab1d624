package scope

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Bounds are what a pod may do besides files. The zero Bounds have no network and no
// secrets, and know no limit.
type Bounds struct {
	Network *policy.Policy `json:"network,omitempty"` // nil: none
	Secrets []string       `json:"secrets,omitempty"` // names
	Limits  api.Limits     `json:"limits,omitzero"`   // 0: none
	Until   time.Time      `json:"until,omitzero"`    // when it ends; zero: never
	Budget  Budget         `json:"budget,omitzero"`
}

// Budget is what all pods below one have together. 0: no bound but those of the pods above.
type Budget struct {
	Pods   int     `json:"pods,omitempty"`   // how many there are at once
	Depth  int     `json:"depth,omitempty"`  // how many stand one below the other; 1: its own pods spawn none
	CPUs   float64 `json:"cpus,omitempty"`   // the sum of their limits
	Memory int64   `json:"memory,omitempty"` // bytes; the sum of their limits
	PIDs   int64   `json:"pids,omitempty"`   // the sum of their limits
}

// check refuses a budget that makes no sense.
func (b Budget) check() error {
	if b.Pods < 0 || b.Depth < 0 || !(b.CPUs >= 0) || b.Memory < 0 || b.PIDs < 0 {
		return errorf("budget: less than nothing")
	}
	return nil
}

// Under is b as it holds for a child of a pod with the bounds of: with of's limits and end
// where b says none, and the rules by which of's network denies. Where b goes beyond of the
// error says each reason, and what would do: a child's bounds never exceed its parent's.
func (b Bounds) Under(of Bounds) (Bounds, error) {
	out := Bounds{Secrets: slices.Clone(b.Secrets), Limits: b.Limits, Until: b.Until, Budget: b.Budget}
	errs := []error{b.Budget.check()}
	add := func(format string, args ...any) { errs = append(errs, errorf(format, args...)) }
	for _, s := range b.Secrets {
		if !slices.Contains(of.Secrets, s) {
			add("secrets: the parent has no secret %.64q; it has %q", s, of.Secrets)
		}
	}
	var err error
	if out.Network, err = networkUnder(b, of); err != nil {
		errs = append(errs, fmt.Errorf("network: %w", err))
	}
	errs = append(errs,
		narrow("cpus", &out.Limits.CPUs, of.Limits.CPUs),
		narrow("memory", &out.Limits.Memory, of.Limits.Memory),
		narrow("pids", &out.Limits.PIDs, of.Limits.PIDs),
		narrow("disk", &out.Limits.Disk, of.Limits.Disk),
		narrow("inodes", &out.Limits.Inodes, of.Limits.Inodes))
	switch {
	case out.Until.IsZero():
		out.Until = of.Until
	case !of.Until.IsZero() && out.Until.After(of.Until):
		add("time: it would end at %s, and its parent ends at %s", out.Until.Format(time.RFC3339), of.Until.Format(time.RFC3339))
	}
	if err := errors.Join(errs...); err != nil {
		return Bounds{}, err
	}
	return out, nil
}

func networkUnder(b, of Bounds) (*policy.Policy, error) {
	switch {
	case b.Network == nil:
		return nil, nil
	case of.Network == nil:
		return nil, errorf("the parent has none")
	}
	out, err := policy.Within(*b.Network, *of.Network, of.Secrets)
	if err == nil {
		_, err = policy.Compile(out, b.Secrets) // by which it may use no secret but its own
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// narrow has the parent's limit be the child's where that has none, and refuses a wider one.
func narrow[T int64 | float64](name string, has *T, of T) error {
	switch {
	case !(*has >= 0): // and what is no number
		return errorf("%s: %v can't be a limit", name, *has)
	case *has == 0:
		*has = of
	case of > 0 && *has > of:
		return errorf("%s: %v, where the parent has %v", name, *has, of)
	}
	return nil
}
