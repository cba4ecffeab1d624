package template

import (
	"context"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// spawnEvery is how often the count of a template's sandboxes is written down
// at most: the newest may be lost with a daemon that is killed.
const spawnEvery = 10 * time.Second

// Resolve returns the build that ref names for c: NAME, NAME:TAG, OWNER/NAME,
// or the ID of a template or of a snapshot. What c may not use is NotFound.
func (s *Service) Resolve(ctx context.Context, c sandbox.Caller, ref string) (Build, error) {
	if isBase(ref) && ref != "" {
		return BaseBuild(), nil
	}
	if sandbox.ValidSnapshotID(ref) {
		return s.resolveSnapshot(ctx, c, ref)
	}
	b, err := s.lookUp(c, ref)
	if sandbox.KindOf(err) == sandbox.NotFound {
		if built, ok, berr := s.resolveBuiltin(ctx, ref); ok {
			return built, berr
		}
	}
	if err != nil {
		return Build{}, err
	}
	s.spawned(ctx, b.TemplateID)
	return b, nil
}

// Caller is with whose rights a sandbox of b is made for c: what builds wrote
// belongs to no caller.
func (b Build) Caller(c sandbox.Caller) sandbox.Caller {
	c.Admin = c.Admin || b.Snapshot != ""
	return c
}

func (s *Service) resolveSnapshot(ctx context.Context, c sandbox.Caller, id string) (Build, error) {
	snap, err := s.m.GetSnapshot(ctx, c, id)
	if err != nil {
		return Build{}, err
	}
	b := Build{TemplateID: id, BuildID: id, Image: snap.Image, Snapshot: id}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.builds { // one that was given a name has more to say
		if r.Snapshot == id && r.Owner == c.Owner && r.Status == Ready {
			named := s.buildOfLocked(r)
			named.TemplateID = id
			return named, nil
		}
	}
	return b, nil
}

// lookUp is Resolve for templates that were built.
func (s *Service) lookUp(c sandbox.Caller, ref string) (Build, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, tag, err := s.findLocked(c, ref, true)
	if err != nil {
		return Build{}, err
	}
	r := s.builds[s.tags[[2]string{t.ID, tag}].Build]
	if r == nil || r.Status != Ready {
		return Build{}, sandbox.Errorf(sandbox.NotFound, "template %s: it has no build that is ready with the tag %s", t.Name, tag).
			WithHint("build it, or choose another tag")
	}
	return s.buildOfLocked(r), nil
}

func (s *Service) buildOfLocked(r *Record) Build {
	r2 := r.clone()
	b := Build{
		TemplateID: r2.Template, BuildID: r2.ID, Image: r2.Image, Snapshot: r2.Snapshot,
		CPUs: r2.CPUs, Memory: r2.Memory, Disk: r2.Disk, Env: r2.Env, User: r2.User, Cwd: r2.Cwd, Startup: r2.Startup,
	}
	if t := s.templates[r.Template]; t != nil {
		b.Alias = t.Name
	}
	return b
}

// spawned counts a sandbox.
func (s *Service) spawned(ctx context.Context, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.templates[id]
	if t == nil {
		return
	}
	now := s.stamp()
	write := now.Sub(t.SpawnedAt) >= spawnEvery
	t.SpawnedAt = now
	t.Spawns++
	if write {
		if err := s.o.Store.PutTemplate(context.WithoutCancel(ctx), *t); err != nil {
			s.log.Warn("count a template's sandbox", "template", id, "error", err)
		}
	}
}

// builtin is a template that the daemon itself has.
type builtin func(ctx context.Context) (Build, error)

// Builtin has a name stand for what prepare returns, for everyone who has no
// template of that name. prepare is called at each use, and is to be quick
// but for the first: Make is what it may call.
func (s *Service) Builtin(name string, prepare func(ctx context.Context) (Build, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builtins[name] = prepare
}

func (s *Service) resolveBuiltin(ctx context.Context, ref string) (Build, bool, error) {
	r, err := ParseRef(ref)
	if err != nil || r.Namespace != "" || r.Tag != "" && r.Tag != defaultTag {
		return Build{}, false, nil
	}
	s.mu.Lock()
	prepare := s.builtins[r.Name]
	s.mu.Unlock()
	if prepare == nil {
		return Build{}, false, nil
	}
	b, err := prepare(ctx)
	if b.TemplateID == "" {
		b.TemplateID = r.Name
	}
	if b.Alias == "" {
		b.Alias = r.Name
	}
	return b, true, err
}

// SnapshotNames returns the names that c's snapshots have as templates, by
// their IDs, each as NAME:TAG, sorted.
func (s *Service) SnapshotNames(_ context.Context, c sandbox.Caller) (map[string][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string][]string{}
	for _, tag := range s.tags {
		t, r := s.templates[tag.Template], s.builds[tag.Build]
		if t != nil && r != nil && r.Snapshot != "" && r.Status == Ready && (c.Admin || r.Owner == c.Owner) {
			names[r.Snapshot] = append(names[r.Snapshot], t.Name+":"+tag.Name)
		}
	}
	for _, list := range names {
		slices.Sort(list)
	}
	return names, nil
}
