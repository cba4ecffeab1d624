package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

const (
	writable = request.Writable

	userOwner = "user" // of a writable copy; a sandbox's commands are this user's
	rootOwner = "root" // of one that is to be read alone

	// ConflictSuffix is what the name of a copy gets that a newer one of the
	// store took the place of, though the sandbox had changed it. No skill's
	// name has a dot.
	ConflictSuffix = ".conflict"
)

// Place says which package a mount means. A mount whose directory is outside
// the store is not ok, and no skill; one that is inside and can't be a skill's
// is an error.
func (s *Store) Place(m request.Mount) (p Placed, ok bool, err error) {
	rel, ok := s.within(m.HostPath)
	if !ok {
		return Placed{}, false, nil
	}
	if top, _, _ := strings.Cut(rel, "/"); rel == "." || s.reserved(top) {
		return Placed{}, true, invalid("host_path %s is no skill's package", describe(m.HostPath))
	}
	at := path.Clean(m.Target)
	name, err := checkName(path.Base(at))
	if err != nil || path.Dir(at) != tools.SkillsPath || name != path.Base(at) {
		return Placed{}, true, invalid("skill %s can't be mounted at %s", describe(rel), describe(m.Target)).
			WithHint("mount it at %s/NAME", tools.SkillsPath)
	}
	mode := cmp.Or(m.Mode, writable)
	if mode != writable && mode != request.ReadOnly {
		return Placed{}, true, invalid("skill %s: mode %.16q: use ro or rw", name, mode)
	}
	return Placed{Name: name, Dir: rel, Mode: mode}, true, nil
}

// Bring sees to it that a sandbox has packages as the store has them, below
// tools.SkillsPath, which must be there and root's; what did not change costs
// no call. Packages that were brought and that the store has no longer are
// removed; others that are not wanted this time stay. A copy that changed
// inside and in the store gives way, and is kept under its name with
// ConflictSuffix. The notices say what was not brought, and why; an error is
// one of the sandbox or of the store.
func (s *Store) Bring(ctx context.Context, g Guest, b *Brought, want []Placed) (notices []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(want) == 0 && len(b.copies) == 0 {
		return nil, nil
	}
	dir, err := s.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := b.check(ctx, g); err != nil {
		return nil, s.guestFault(err)
	}
	for _, name := range slices.Sorted(maps.Keys(b.copies)) {
		if entryOf(dir, b.copies[name].Dir) != "" {
			continue
		}
		if err := g.Remove(ctx, name); err != nil {
			return notices, s.guestFault(err)
		}
		b.set(name, nil)
	}
	for _, p := range want {
		notice, err := s.bring(ctx, dir, g, b, p)
		if notice != "" {
			notices = append(notices, notice)
		}
		if err != nil {
			return notices, s.guestFault(err)
		}
	}
	return notices, nil
}

func inGuest(name string) string { return path.Join(tools.SkillsPath, name) }

// partial begins what an agent that ended had not put in its place yet.
const partial = ".carboy-"

// check forgets what a sandbox lost since it was started again, and removes
// what was cut off.
func (b *Brought) check(ctx context.Context, g Guest) error {
	if b.checked || len(b.copies) == 0 {
		b.checked = true
		return nil
	}
	names, err := g.Names(ctx)
	if err != nil && !errors.Is(err, agent.ErrNotThere) {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, partial) {
			if err := g.Remove(ctx, name); err != nil {
				return err
			}
		}
	}
	for name := range maps.Clone(b.copies) {
		if !slices.Contains(names, name) {
			b.set(name, nil)
		}
	}
	b.checked = true
	return nil
}

// guestFault makes an error of the sandbox one that a caller may see.
func (s *Store) guestFault(err error) error {
	refusal, refused := errors.AsType[*agent.Refusal](err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, agent.ErrNotThere):
		return sandbox.Errorf(sandbox.Unavailable, "bring skills: the sandbox has no %s", tools.SkillsPath)
	case refused:
		return sandbox.Errorf(sandbox.Unavailable, "bring skills: the sandbox refuses: %s", refusal.Text)
	case errors.Is(err, agent.ErrBroken):
		return &sandbox.Error{Kind: sandbox.Unavailable, Msg: "bring skills: the sandbox did not answer", Err: err}
	}
	return s.fault("bring skills", err)
}

// bring brings one package, if the sandbox does not have it. An error that is
// the package's own becomes a notice.
func (s *Store) bring(ctx context.Context, dir *os.Root, g Guest, b *Brought, p Placed) (string, error) {
	fail := func(err error) (string, error) {
		if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind != sandbox.Internal {
			return fmt.Sprintf("skill %s was not brought: %s", p.Name, e.Msg), nil
		}
		return "", err
	}
	if entryOf(dir, p.Dir) == "" {
		return fail(sandbox.Errorf(sandbox.NotFound, "the store has no package in %s", describe(p.Dir)))
	}
	pkg, err := openBelow(dir, p.Dir)
	if err != nil {
		return fail(s.fault("open the package", err))
	}
	defer pkg.Close()
	content, nodes, skip, err := s.content(ctx, pkg, p.Dir)
	if err != nil {
		return fail(err)
	}
	now := held{Dir: p.Dir, Mode: p.Mode, Sum: content}
	was, there := b.copies[p.Name]
	if there && was == now {
		return "", nil
	}
	notice := ""
	if len(skip.strange) > 0 {
		notice = fmt.Sprintf("skill %s: links and special files were not brought: %s", p.Name, candidates(skip.strange, func(s string) string { return s }))
	}
	keep := ""
	if there && was.Mode == writable {
		inside, err := s.peek(ctx, g, p.Name, nodes)
		if err != nil {
			return "", err
		}
		if inside != was.Sum && inside != content {
			keep = p.Name + ConflictSuffix
			notice = fmt.Sprintf("skill %s changed in the store and in the sandbox: the store's is at %s now, the sandbox's at %s", p.Name, inGuest(p.Name), inGuest(keep))
		}
	}
	if err := send(ctx, g, pkg, nodes, p, keep); err != nil {
		if sandbox.KindOf(err) == sandbox.Conflict {
			return fail(err)
		}
		return notice, err
	}
	b.set(p.Name, &now)
	return notice, nil
}

// peek returns the content of a sandbox's copy; "" is one that can't be
// taken back, or that is not there.
func (s *Store) peek(ctx context.Context, g Guest, name string, stored []node) (content string, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	err = g.Fetch(ctx, name, leftOut, func(r io.Reader) error {
		var err error
		content, err = sumTar(ctx, r, name, guestLimits(stored))
		if sandbox.KindOf(err) == sandbox.Invalid {
			return nil
		}
		return err
	})
	if errors.Is(err, agent.ErrNotThere) {
		return "", nil
	}
	return content, err
}

// send streams a package to a sandbox.
func send(ctx context.Context, g Guest, pkg *os.Root, nodes []node, p Placed, keep string) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := writeTar(ctx, pkg, nodes, w)
		w.CloseWithError(err)
		done <- err
	}()
	owner := rootOwner
	if p.Mode == writable {
		owner = userOwner
	}
	err := g.Replace(ctx, p.Name, owner, keep, r)
	r.CloseWithError(io.ErrClosedPipe)
	if werr := <-done; err != nil && werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
		return werr // which is why the sandbox's end broke off
	}
	return err
}

func (n node) modified() time.Time { return time.Unix(0, n.sig[2]) }
