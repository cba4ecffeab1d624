package template

import (
	"cmp"
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Request says what is to be built.
type Request struct {
	Name   string // NAME or NAME:TAG
	Tags   []string
	CPUs   float64 // 0: the default
	Memory int64   // bytes; 0: the default
	Disk   int64
}

// Info is a template with all that belongs to it.
type Info struct {
	Template
	Namespace string
	Builds    []Record // newest first
	Tags      []Tag
}

// Latest returns the newest build that is ready, or else the newest.
func (i Info) Latest() Record {
	for _, r := range i.Builds {
		if r.Status == Ready {
			return r
		}
	}
	if len(i.Builds) > 0 {
		return i.Builds[0]
	}
	return Record{}
}

// Request enters a build of a template, which it makes where c has none of
// that name.
func (s *Service) Request(ctx context.Context, c sandbox.Caller, q Request) (Template, Record, error) {
	if err := s.o.Room(c.Owner, "build a template"); err != nil {
		return Template{}, Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requestLocked(ctx, c, q)
}

func (s *Service) requestLocked(ctx context.Context, c sandbox.Caller, q Request) (Template, Record, error) {
	ref, err := s.ownRef(c, q.Name)
	if err != nil {
		return Template{}, Record{}, err
	}
	tags := q.Tags
	if ref.Tag != "" {
		tags = append([]string{ref.Tag}, tags...)
	}
	if tags, err = checkTags(tags); err != nil {
		return Template{}, Record{}, err
	}
	if len(tags) == 0 {
		tags = []string{defaultTag}
	}
	t, _, err := s.findLocked(sandbox.Caller{Owner: c.Owner}, ref.Name, false)
	if sandbox.KindOf(err) == sandbox.NotFound {
		t, err = s.newTemplateLocked(ctx, c.Owner, ref.Name)
	}
	if err != nil {
		return Template{}, Record{}, err
	}
	r, err := s.newBuildLocked(ctx, t, c.Owner, tags, q)
	return *t, r, err
}

// ownRef takes a name apart that must be one of c's own.
func (s *Service) ownRef(c sandbox.Caller, name string) (Ref, error) {
	ref, err := ParseRef(name)
	if err != nil {
		return Ref{}, err
	}
	if ref.Namespace != "" && ref.Namespace != Namespace(c.Owner) {
		return Ref{}, sandbox.Errorf(sandbox.Denied, "template %s/%s: that is another owner's namespace", ref.Namespace, ref.Name).
			WithHint("yours is %s", Namespace(c.Owner))
	}
	if isBase(ref.Name) {
		return Ref{}, sandbox.Errorf(sandbox.Conflict, "template %s: the name is taken by the machine's own programs", Base).
			WithHint("choose another name")
	}
	return ref, nil
}

// bound returns how many templates, and builds at the same time, owner may have.
func (s *Service) bound(owner string) (templates, builds int) {
	if s.o.Bound != nil {
		templates, builds = s.o.Bound(owner)
	}
	return cmp.Or(templates, maxTemplates), cmp.Or(builds, s.o.PerOwner)
}

func (s *Service) newTemplateLocked(ctx context.Context, owner, name string) (*Template, error) {
	n := 0
	for _, t := range s.templates {
		if t.Owner == owner {
			n++
		}
	}
	if most, _ := s.bound(owner); n >= most {
		return nil, sandbox.Errorf(sandbox.Exhausted, "templates: this owner has %d, and can have no more", n).WithHint("delete one: carboy template rm NAME")
	}
	t := &Template{ID: newID(), Owner: owner, Name: name, CreatedAt: s.stamp(), UpdatedAt: s.stamp()}
	if err := s.o.Store.PutTemplate(ctx, *t); err != nil {
		return nil, err
	}
	s.templates[t.ID] = t
	return t, nil
}

func (s *Service) newBuildLocked(ctx context.Context, t *Template, owner string, tags []string, q Request) (Record, error) {
	if err := s.pruneLocked(ctx, t.ID, maxBuilds-1); err != nil {
		return Record{}, err
	}
	r := &Record{
		ID: newUUID(), Template: t.ID, Owner: owner, Status: Waiting, Tags: tags, CPUs: q.CPUs, Memory: q.Memory, Disk: q.Disk,
		EnvdVersion: s.o.EnvdVersion, CreatedAt: s.stamp(), UpdatedAt: s.stamp(),
	}
	if err := s.o.Store.PutBuild(ctx, *r); err != nil {
		return Record{}, err
	}
	s.builds[r.ID] = r
	return r.clone(), nil
}

func (s *Service) infoLocked(t *Template) Info {
	i := Info{Template: *t, Namespace: Namespace(t.Owner)}
	for _, r := range s.builds {
		if r.Template == t.ID {
			i.Builds = append(i.Builds, r.clone())
		}
	}
	slices.SortFunc(i.Builds, func(a, b Record) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	for key, tag := range s.tags {
		if key[0] == t.ID {
			i.Tags = append(i.Tags, tag)
		}
	}
	slices.SortFunc(i.Tags, func(a, b Tag) int { return cmp.Compare(a.Name, b.Name) })
	return i
}

// List returns c's templates, newest first.
func (s *Service) List(_ context.Context, c sandbox.Caller) ([]Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyLocked(c); err != nil {
		return nil, err
	}
	out := []Info{}
	for _, t := range s.templates {
		if t.Owner == c.Owner {
			out = append(out, s.infoLocked(t))
		}
	}
	slices.SortFunc(out, func(a, b Info) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return out, nil
}

// Get returns one of c's templates, or with public one that c may use.
func (s *Service) Get(_ context.Context, c sandbox.Caller, ref string, public bool) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.findLocked(c, ref, public)
	if err != nil {
		return Info{}, err
	}
	return s.infoLocked(t), nil
}

// SetPublic lets others use a template, or no longer.
func (s *Service) SetPublic(ctx context.Context, c sandbox.Caller, ref string, public bool) (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.findLocked(c, ref, false)
	if err != nil {
		return Info{}, err
	}
	next := *t
	next.Public, next.UpdatedAt = public, s.stamp()
	if err := s.o.Store.PutTemplate(ctx, next); err != nil {
		return Info{}, err
	}
	*t = next
	return s.infoLocked(t), nil
}

// Delete deletes a template with its builds, those under way too. Sandboxes
// that were made from it go on. A snapshot's ID deletes that.
func (s *Service) Delete(ctx context.Context, c sandbox.Caller, ref string) error {
	if sandbox.ValidSnapshotID(ref) {
		return s.deleteSnapshot(ctx, c, ref)
	}
	for {
		owner, under, err := s.deleteIdle(ctx, c, ref)
		if err != nil {
			return err
		}
		if len(under) == 0 {
			return s.sweep(ctx, owner)
		}
		for _, r := range under {
			select {
			case <-r.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// deleteIdle deletes a template, or cancels its builds under way and returns
// them: none begins between the look for them and the end of their records.
func (s *Service) deleteIdle(ctx context.Context, c sandbox.Caller, ref string) (owner string, under []*running, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _, err := s.findLocked(c, ref, false)
	if err != nil {
		return "", nil, err
	}
	for id, r := range s.running {
		if s.builds[id].Template == t.ID {
			r.cancel(errDeleted)
			under = append(under, r)
		}
	}
	if len(under) > 0 {
		return "", under, nil
	}
	if err := s.o.Store.DeleteTemplate(ctx, t.ID); err != nil {
		return "", nil, err
	}
	delete(s.templates, t.ID)
	for id, r := range s.builds {
		if r.Template == t.ID {
			delete(s.builds, id)
			s.logs.remove(id)
		}
	}
	for key := range s.tags {
		if key[0] == t.ID {
			delete(s.tags, key)
		}
	}
	return t.Owner, nil, nil
}

var errDeleted = sandbox.Errorf(sandbox.Conflict, "the template was deleted")

func (s *Service) deleteSnapshot(ctx context.Context, c sandbox.Caller, id string) error {
	if err := s.m.RemoveSnapshot(ctx, c, id); err != nil {
		return err
	}
	s.mu.Lock()
	var named []string
	for _, r := range s.builds {
		if r.Snapshot == id {
			named = append(named, r.Template)
		}
	}
	s.mu.Unlock()
	for _, t := range named {
		if i, err := s.Get(ctx, c, t, false); err == nil && len(i.Builds) == 1 {
			if err := s.Delete(ctx, c, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// Assign has tags lead to the build that target, NAME or NAME:TAG, leads to.
func (s *Service) Assign(ctx context.Context, c sandbox.Caller, target string, tags []string) (Record, []string, error) {
	tags, err := someTags(tags)
	if err != nil {
		return Record{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, tag, err := s.findLocked(c, target, false)
	if err != nil {
		return Record{}, nil, err
	}
	r := s.builds[s.tags[[2]string{t.ID, tag}].Build]
	if r == nil {
		return Record{}, nil, sandbox.Errorf(sandbox.NotFound, "template %s: it has no tag %s", t.Name, tag)
	}
	for _, name := range tags {
		if err := s.tagLocked(ctx, Tag{Template: t.ID, Name: name, Build: r.ID, CreatedAt: s.stamp()}); err != nil {
			return Record{}, nil, err
		}
	}
	return r.clone(), tags, nil
}

func someTags(tags []string) ([]string, error) {
	if len(tags) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "tags: there must be one")
	}
	return checkTags(tags)
}

func (s *Service) tagLocked(ctx context.Context, t Tag) error {
	n := 0
	for key := range s.tags {
		if key[0] == t.Template && key[1] != t.Name {
			n++
		}
	}
	if n >= maxTags {
		return sandbox.Errorf(sandbox.Exhausted, "tags: the template has %d, and can have no more", n).WithHint("remove one")
	}
	if err := s.o.Store.PutTag(ctx, t); err != nil {
		return err
	}
	s.tags[[2]string{t.Template, t.Name}] = t
	return nil
}

// Untag removes tags. The default one stays.
func (s *Service) Untag(ctx context.Context, c sandbox.Caller, name string, tags []string) error {
	tags, err := someTags(tags)
	if err != nil {
		return err
	}
	if slices.Contains(tags, defaultTag) {
		return sandbox.Errorf(sandbox.Invalid, "tag %s: it can't be removed", defaultTag).WithHint("delete the template, or assign the tag anew")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, tag, err := s.findLocked(c, name, false)
	if err != nil {
		return err
	}
	if tag != defaultTag {
		return sandbox.Errorf(sandbox.Invalid, "name %.80q: without a tag here", name)
	}
	for _, name := range tags {
		key := [2]string{t.ID, name}
		if _, ok := s.tags[key]; !ok {
			return sandbox.Errorf(sandbox.NotFound, "template %s: it has no tag %s", t.Name, name)
		}
		if err := s.o.Store.DeleteTag(ctx, t.ID, name); err != nil {
			return err
		}
		delete(s.tags, key)
	}
	return nil
}

// Build returns one build of one of c's templates.
func (s *Service) Build(_ context.Context, c sandbox.Caller, ref, build string) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.buildLocked(c, ref, build)
	if err != nil {
		return Record{}, err
	}
	return r.clone(), nil
}

func (s *Service) buildLocked(c sandbox.Caller, ref, build string) (*Record, error) {
	t, _, err := s.findLocked(c, ref, false)
	if err != nil {
		return nil, err
	}
	r := s.builds[build]
	if r == nil || r.Template != t.ID {
		return nil, sandbox.Errorf(sandbox.NotFound, "build %.80q: the template has no such build", build)
	}
	return r, nil
}

var errCancelled = sandbox.Errorf(sandbox.Conflict, "the build was cancelled")

// Cancel ends a build that waits or is under way, and returns once it has
// ended. One that has ended stays as it is.
func (s *Service) Cancel(ctx context.Context, c sandbox.Caller, ref, build string) error {
	s.mu.Lock()
	r, err := s.buildLocked(c, ref, build)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	under := s.running[r.ID]
	if under == nil {
		defer s.mu.Unlock()
		if r.done() {
			return nil
		}
		return s.failLocked(ctx, r, &Reason{Message: errCancelled.Msg})
	}
	s.mu.Unlock()
	under.cancel(errCancelled)
	select {
	case <-under.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// CancelAll ends all builds of an owner, and counts them.
func (s *Service) CancelAll(_ context.Context, owner string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.running {
		if s.builds[id].Owner == owner {
			r.cancel(errCancelled)
			n++
		}
	}
	return n
}

// failLocked writes down that a build failed.
func (s *Service) failLocked(ctx context.Context, r *Record, why *Reason) error {
	next := r.clone()
	next.Status, next.Reason = Failed, why
	next.FinishedAt, next.UpdatedAt = s.stamp(), s.stamp()
	if err := s.o.Store.PutBuild(context.WithoutCancel(ctx), next); err != nil {
		return err
	}
	*r = next
	return nil
}

// AddSnapshot gives a snapshot of c's a name, by which it is a template, and
// returns what a sandbox of it starts from; with no name it has none.
func (s *Service) AddSnapshot(ctx context.Context, c sandbox.Caller, snap sandbox.Snapshot, name string) (Build, error) {
	if name == "" {
		return Build{TemplateID: snap.ID, BuildID: snap.ID, Image: snap.Image, Snapshot: snap.ID}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, r, err := s.requestLocked(ctx, c, Request{Name: name})
	if err != nil {
		return Build{}, err
	}
	r.Status, r.Started, r.Image, r.Snapshot = Ready, true, snap.Image, snap.ID
	r.FinishedAt, r.UpdatedAt = s.stamp(), s.stamp()
	if err := s.finishLocked(ctx, s.builds[r.ID], r); err != nil {
		return Build{}, err
	}
	b := s.buildOfLocked(s.builds[r.ID])
	b.Alias = t.Name
	return b, nil
}

// finishLocked writes down what a build came to, and its tags.
func (s *Service) finishLocked(ctx context.Context, r *Record, next Record) error {
	ctx = context.WithoutCancel(ctx)
	if err := s.o.Store.PutBuild(ctx, next); err != nil {
		return err
	}
	*r = next
	return s.leadLocked(ctx, r)
}

// leadLocked has the tags of a build that is ready lead to it. The template
// comes last: one that was changed before its build ended was cut short here.
func (s *Service) leadLocked(ctx context.Context, r *Record) error {
	for _, tag := range r.Tags {
		if err := s.tagLocked(ctx, Tag{Template: r.Template, Name: tag, Build: r.ID, CreatedAt: s.stamp()}); err != nil {
			return err
		}
	}
	t := s.templates[r.Template]
	up := *t
	up.UpdatedAt = s.stamp()
	if err := s.o.Store.PutTemplate(ctx, up); err != nil {
		return err
	}
	*t = up
	return nil
}
