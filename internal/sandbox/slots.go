package sandbox

// slots returns those of the caches that s shows, by volume.
func (s Spec) slots() map[string]int {
	var slots map[string]int
	for _, m := range s.Mounts {
		if m.Slot == 0 {
			continue
		}
		if slots == nil {
			slots = map[string]int{}
		}
		slots[m.Volume] = m.Slot
	}
	return slots
}

// assignSlots gives each cache that spec shows the lowest slot which no other
// sandbox has: tools lock their caches, some for as long as a build takes, and those of
// other sandboxes would wait. A home is not changed under a sandbox
// that had one: it fails with Conflict while another has it. The turn must be held.
func (r *registry) assignSlots(e *entry, spec *Spec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, m := range spec.Mounts {
		if !m.Cache {
			continue
		}
		taken := r.takenSlotsLocked(e, m.Volume)
		if m.Home == "" || m.Slot == 0 {
			spec.Mounts[i].Slot = freeSlot(taken)
		} else if other, ok := taken[m.Slot]; ok {
			return Errorf(Conflict, "%s: the sandbox %s has its home for %s", m.Target, other, m.Home).
				WithHint("carboy stop %s, or wait until it has ended", other)
		}
	}
	e.slots = spec.slots()
	return nil
}

// takenSlotsLocked says which slots of a volume others than e have, and who.
func (r *registry) takenSlotsLocked(e *entry, volume string) map[int]string {
	taken := map[int]string{}
	for _, other := range r.entries {
		if slot := other.slots[volume]; other != e && slot != 0 && other.holdsSlots() {
			taken[slot] = other.shown()
		}
	}
	return taken
}

func freeSlot(taken map[int]string) int {
	for slot := 1; ; slot++ {
		if _, ok := taken[slot]; !ok {
			return slot
		}
	}
}

// shown is what e's sandbox is called. registry.mu must be held.
func (e *entry) shown() string {
	if e.sb == nil {
		return e.id
	}
	return e.sb.Spec.Name
}

// holdsSlots reports whether e's instance may use its caches now, or will go on from
// where it did. registry.mu must be held.
func (e *entry) holdsSlots() bool {
	return e.sb == nil || e.sb.State != StateStopped || e.sb.Suspended || e.waking
}
