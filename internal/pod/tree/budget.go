package tree

import (
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// afford refuses a pod for which a pod above has too small a budget. r has the limits that it is to have.
func (t *Tree) afford(r record.Pod) error {
	depth := 1
	for name := r.Parent; name != ""; name = t.pods[name].Parent {
		if why := t.exceeds(t.pods[name], r, depth); why != "" {
			return sandbox.Errorf(sandbox.Exhausted, "pod `%s`: %s", name, why).WithHint("stop a pod below it, or ask for less")
		}
		depth++
	}
	return nil
}

// exceeds says what a pod's budget has no room for; "": it has.
func (t *Tree) exceeds(top, r record.Pod, depth int) string {
	b := top.Bounds.Budget
	pods, cpus, memory, pids := 1, r.Bounds.Limits.CPUs, r.Bounds.Limits.Memory, r.Bounds.Limits.PIDs
	for _, p := range t.pods {
		if t.Descends(p.Name, top.Name) {
			pods++
			cpus, memory, pids = cpus+p.Bounds.Limits.CPUs, memory+p.Bounds.Limits.Memory, pids+p.Bounds.Limits.PIDs
		}
	}
	switch {
	case b.CPUs > 0 && r.Bounds.Limits.CPUs == 0:
		return without("cpus")
	case b.Memory > 0 && r.Bounds.Limits.Memory == 0:
		return without("memory")
	case b.PIDs > 0 && r.Bounds.Limits.PIDs == 0:
		return without("processes")
	case b.Pods > 0 && pods > b.Pods:
		return fmt.Sprintf("below it there may be %d pods at once, and there are", b.Pods)
	case b.Depth > 0 && depth > b.Depth:
		return fmt.Sprintf("below it %d pods may stand one below the other, and this would be one more", b.Depth)
	case b.CPUs > 0 && cpus > b.CPUs:
		return fmt.Sprintf("the pods below it may have %g cpus together, and this would make it %g", b.CPUs, cpus)
	case b.Memory > 0 && memory > b.Memory:
		return fmt.Sprintf("the pods below it may have %s of memory together, and this would make it %s", sandbox.SizeText(b.Memory), sandbox.SizeText(memory))
	case b.PIDs > 0 && pids > b.PIDs:
		return fmt.Sprintf("the pods below it may have %d processes together, and this would make it %d", b.PIDs, pids)
	}
	return ""
}

func without(what string) string {
	return "the pods below it have a budget of " + what + ", and this one would have no limit of them"
}
