package sandbox

import (
	"context"
	"slices"
	"sync"
)

var errNoSnapshots = Errorf(Unsupported, "there are no snapshots here")

// snapshots knows every snapshot, removed ones too, until its files are deleted.
// Each change is written to the store before it is heeded. After a crash load
// reads what the store has, and the next collect deletes what was removed and
// nothing lies over any more.
//
// turn is taken before every lock, and after a sandbox's turn. mu is taken after
// registry.mu, and nothing is called with it held.
type snapshots struct {
	*common
	store  Snapshots // nil: nothing is kept
	quotas Quotas
	turn   turn // to change records, and to delete

	mu     sync.Mutex
	all    map[string]Snapshot
	saving map[string]int // being made, by owner
}

func newSnapshots(c *common, store Snapshots, q Quotas) *snapshots {
	return &snapshots{
		common: c, store: store, quotas: q, turn: newTurn(),
		all: make(map[string]Snapshot), saving: make(map[string]int),
	}
}

// load reads what is kept, before anything else is done.
func (s *snapshots) load(ctx context.Context) error {
	if s.store == nil {
		return nil
	}
	kept, err := s.store.Open(ctx)
	if err != nil {
		return err
	}
	for _, x := range kept {
		s.put(x)
	}
	return nil
}

func (s *snapshots) put(x Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[x.ID] = x
}

func (s *snapshots) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// get returns one that c may see.
func (s *snapshots) get(c Caller, id string) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.all[id]
	if !ok || !x.shownTo(c) {
		return Snapshot{}, unknownSnapshot(id)
	}
	x.Notes = slices.Clone(x.Notes)
	return x, nil
}

func (s Snapshot) shownTo(c Caller) bool { return !s.Removed && (c.Admin || s.Owner == c.Owner) }

// list returns those that c may see, oldest first.
func (s *snapshots) list(c Caller) []Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Snapshot
	for _, x := range s.all {
		if x.shownTo(c) {
			x.Notes = slices.Clone(x.Notes)
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return byAge(a.CreatedAt, b.CreatedAt, a.ID, b.ID) })
	return out
}

func unknownSnapshot(id string) error {
	if !ValidSnapshotID(id) {
		id = refText(id)
	}
	return Errorf(NotFound, "snapshot %s: not found", id).WithHint("carboy snapshot ls")
}

// usable says why c can't start a sandbox from a snapshot; "" is none.
func (s *snapshots) usable(c Caller, id string) error {
	if id == "" {
		return nil
	}
	_, err := s.below(c, id)
	return err
}

// below returns a snapshot that c may start from.
func (s *snapshots) below(c Caller, id string) (Snapshot, error) {
	if s.store == nil {
		return Snapshot{}, errNoSnapshots
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.all[id]
	if !ok || x.Removed || !c.Admin && !x.Shared && x.Owner != c.Owner {
		return Snapshot{}, unknownSnapshot(id)
	}
	return x, nil
}

// imageFor gives spec the image that its snapshot lies over, if it names one
// that the caller may start from. Whether that is still there is known only once
// it is in use: see registry.enrol.
func (s *snapshots) imageFor(c Caller, spec Spec) (Spec, error) {
	if spec.Snapshot == "" {
		return spec, nil
	}
	x, err := s.below(c, spec.Snapshot)
	if err != nil {
		return Spec{}, err
	}
	digest := ImageDigest(spec.Image)
	if spec.Image == "" || digest != "" && digest == ImageDigest(x.Image) { // under whatever name
		spec.Image = x.Image
	}
	if spec.Image != x.Image {
		return Spec{}, Errorf(Invalid, "snapshot %s: it lies over the image %s, not over %s", x.ID, x.Image, refText(spec.Image)).
			WithHint("leave the image out")
	}
	return spec, nil
}

// images lists the images that snapshots lie over.
func (s *snapshots) images() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]string, 0, len(s.all))
	for _, x := range s.all {
		out = append(out, x.Image)
	}
	return out
}

// depth counts a snapshot and those below it.
func (s *snapshots) depth(id string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; id != "" && n <= MaxSnapshotChain; id = s.all[id].Parent {
		n++
	}
	return n
}

// save keeps what sb wrote. The turn of sb must be held.
func (s *snapshots) save(ctx context.Context, b Backend, sb *Sandbox) (Snapshot, error) {
	saver, err := s.saver(b, sb)
	if err != nil {
		return Snapshot{}, err
	}
	if err := s.room(sb.Owner, "keep sandbox "+sb.Spec.Name, snapshotRoom); err != nil {
		return Snapshot{}, err
	}
	done, err := s.admit(sb.Owner)
	if err != nil {
		return Snapshot{}, err
	}
	defer done()
	x := Snapshot{Owner: sb.Owner, Image: sb.Spec.Image, Parent: sb.Spec.Snapshot, Source: sb.ID, CreatedAt: s.now()}
	if x.ID, err = s.random(NewSnapshotID); err != nil {
		return Snapshot{}, err
	}
	x, err = s.store.Keep(ctx, x, func(ctx context.Context, dir string) (Saved, error) {
		saved, err := saver.Save(ctx, sb, dir)
		if note := leftOut(sb.Spec.Workspace); note != "" {
			saved.Notes = append([]string{note}, saved.Notes...)
		}
		return saved, err
	})
	if err != nil {
		return Snapshot{}, failure(err, sb.Spec.Name, "save what it wrote")
	}
	s.put(x)
	return x, nil
}

// leftOut says that a workspace is no part of a snapshot, and why; "": it is.
func leftOut(w Workspace) string {
	switch w.Mode {
	case WorkspacePrivate:
		return ""
	case WorkspaceCOW:
		return "/workspace was left out, and what was changed in it: it is a view of a directory of the host, not the sandbox's own"
	case WorkspaceVolume:
		return "/workspace was left out: it is a volume, not the sandbox's own"
	}
	return "/workspace was left out: it is a directory of the host, not the sandbox's own"
}

// saver says why what sb wrote can't be saved.
func (s *snapshots) saver(b Backend, sb *Sandbox) (Snapshotter, error) {
	name := sb.Spec.Name
	saver := b.Capabilities().Snapshots
	if saver == nil {
		return nil, Errorf(Unsupported, "sandbox %s: its wall %s can't save what it wrote", name, sb.Backend)
	}
	if n := s.depth(sb.Spec.Snapshot) + 1; n > MaxSnapshotChain {
		return nil, Errorf(Exhausted, "sandbox %s: it lies over %d snapshots already, and no more can lie over one another", name, n-1).
			WithHint("start anew from an earlier snapshot, or from the image")
	}
	return saver, nil
}

// admit refuses one more snapshot than an owner may have.
func (s *snapshots) admit(owner string) (done func(), err error) {
	most := s.quotas.Quota(owner).Snapshots
	s.mu.Lock()
	defer s.mu.Unlock()
	if most > 0 {
		n := s.saving[owner]
		for _, x := range s.all {
			if x.Owner == owner && !x.Removed {
				n++
			}
		}
		if n >= most {
			return nil, Errorf(Exhausted, "there are %d snapshots of this owner, and no more may be kept", n).
				WithHint("carboy snapshot rm ID")
		}
	}
	s.saving[owner]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.saving[owner]--; s.saving[owner] == 0 {
			delete(s.saving, owner)
		}
	}, nil
}

// change writes down a change of one snapshot, and only then heeds it.
func (s *snapshots) change(ctx context.Context, c Caller, id string, edit func(*Snapshot)) (Snapshot, error) {
	if err := s.turn.take(ctx); err != nil {
		return Snapshot{}, failure(err, "", "wait for its snapshot")
	}
	defer s.turn.give()
	x, err := s.get(c, id)
	if err != nil {
		return Snapshot{}, err
	}
	edit(&x)
	if err := s.store.Put(ctx, x); err != nil {
		if KindOf(err) != Internal {
			return Snapshot{}, err
		}
		e := Errorf(Internal, "snapshot %s: could not write its record", id).WithHint(LogHint)
		e.Err = err
		return Snapshot{}, e
	}
	s.put(x)
	return x, nil
}

// collect deletes the files of removed snapshots that nothing lies over any
// more: neither what uses lists, nor a snapshot. What can't be deleted is tried
// again when the next one goes.
func (s *snapshots) collect(ctx context.Context, uses func() []use) {
	if len(s.unused(uses)) == 0 {
		return
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	if s.turn.take(ctx) != nil {
		return
	}
	defer s.turn.give()
	for again := true; again; {
		again = false
		for _, id := range s.unused(uses) {
			if err := s.store.Delete(ctx, id); err != nil {
				s.log.Error("delete a removed snapshot", "id", id, "error", err)
				continue
			}
			s.drop(id)
			s.log.Info("snapshot deleted", "id", id)
			again = true // what was below it may be free now
		}
	}
}

// unused lists the removed snapshots that nothing lies over. Nothing will any
// more: a removed one is used for nothing new but by what lies over it. So uses
// is asked after it is known which are removed, and the snapshots over them are
// looked at last: a sandbox is saved before it can go.
func (s *snapshots) unused(uses func() []use) []string {
	removed := s.removed()
	if len(removed) == 0 {
		return nil
	}
	used := make(map[string]bool)
	for _, u := range uses() {
		used[u.snapshot] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		used[x.Parent] = true
	}
	return slices.DeleteFunc(removed, func(id string) bool { return used[id] })
}

func (s *snapshots) removed() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, x := range s.all {
		if x.Removed {
			ids = append(ids, id)
		}
	}
	return ids
}
